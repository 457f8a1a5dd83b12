"""Drop rare words before training a WordPiece vocabulary, because training takes memory for each distinct word."""

import re
from collections import Counter
from collections.abc import Callable, Iterator

# Characters of the distinct words to train on, and ENTRY more for each word. Training needs about 60 bytes for each.
TABLE, ENTRY = 1 << 24, 8


def drop_rare_words(
    texts: Callable[[], Iterator[str]], word: re.Pattern[str], tell: Callable[[str], None]
) -> Callable[[], Iterator[str]]:
    """Return a function that yields the texts without rare words, or `texts` itself if all words fit a table.

    texts: returns a new iterator over the texts at each call.
    word: matches each word of a text.
    tell: receives a line if words are dropped.

    The table counts the words. It holds distinct words of TABLE characters in all, where a word counts as
    len(word) + ENTRY characters. When the table is full, it drops the words seen once, then those seen twice, and so
    on, until at least half of it is free, as `ReduceVocab` in word2vec.c does (Mikolov et al. 2013). If that would drop
    all words, it keeps the half that it saw first. The result keeps the words that the table holds after the last text.
    """
    counts: Counter[str] = Counter()
    size = rarest = 0
    for text in texts():
        for match in word.finditer(text):
            if (name := match[0]) not in counts:
                size += len(name) + ENTRY
            counts[name] += 1
        if size > TABLE:
            while size > TABLE // 2:
                rarest += 1
                rest = {name: count for name, count in counts.items() if count > rarest}
                if not rest:  # all words are equally frequent: keep the first half
                    rest = dict(list(counts.items())[: len(counts) // 2])
                counts = Counter(rest)
                size = sum(len(name) + ENTRY for name in counts)
    if not rarest:
        return texts
    tell(
        f"training the vocabulary on the {len(counts):,} most frequent words, because the distinct words of the source "
        f"have more than {TABLE:,} characters"
    )
    return lambda: (word.sub(lambda match: match[0] if match[0] in counts else "", text) for text in texts())
