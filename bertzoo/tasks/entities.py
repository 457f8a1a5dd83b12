"""Entities in texts of any length: annotated spans, words and their tags (BIO or BIOES), windows and decoding.

The tokenizer defines the words. An entity is a range of words, and its offsets count characters of the text.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from bertzoo.core.documents import DocumentError, fitting, parse_json
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.tasks.metrics import OUTSIDE, entities, split_tag
from bertzoo.tasks.rows import Rows, join_rows
from bertzoo.tasks.windows import Pieces, cut

Scheme = Literal["BIO", "BIOES"]
Aggregation = Literal["first", "max", "average", "simple"]
_PREFIXES = {"BIO": "BI", "BIOES": "BIES"}
_SPAN = {"start": int, "end": int, "label": str}
_OVERLAP = 4  # windows overlap by a fourth of a row
# Characters that every normaliser turns into a space.
_SPACE = re.compile("[\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


class Entity(NamedTuple):
    """An annotated entity: its first character, the character after its last, its label and its name in messages."""

    start: int
    end: int
    label: str
    location: str


def read_spans(cell: Any, text: str, location: str, column: str) -> tuple[Entity, ...]:
    """Return the entities in a cell, in their order in the text.

    cell: a list of objects with `start`, `end` and `label`, or the JSON of such a list.

    Raises UserError naming location and span if a span has a wrong type, is not in the text, or overlaps another.
    """
    try:
        spans = fitting(parse_json(cell, list) if isinstance(cell, str) else cell, [object])
    except DocumentError as error:
        raise UserError(
            f"{location} has no list of entities in the column {column!r}: {error}. Write [] for no entities."
        ) from error
    annotated = []
    for number, span in enumerate(spans, 1):
        where = f"{location} span {number}"
        try:
            start, end, label = (fitting(span, _SPAN)[name] for name in _SPAN)
        except DocumentError as error:
            raise UserError(
                f'{where} in the column {column!r} is no entity: {error}. Write {{"start": 0, "end": 3, "label": '
                '"NAME"}.'
            ) from error
        if not label.strip():
            raise UserError(f"{where} has an empty label. Name the kind of the entity.")
        if not 0 <= start < end <= len(text):
            raise UserError(
                f"{where} has the characters {start} to {end}, but the text has {len(text)}. Count from 0; `end` is "
                "after the last character."
            )
        annotated.append(Entity(start, end, label, where))
    annotated.sort()
    for first, second in itertools.pairwise(annotated):
        if second.start < first.end:
            raise UserError(
                f"{second.location} ({second.start} to {second.end}, {second.label!r}) overlaps {first.location} "
                f"({first.start} to {first.end}, {first.label!r}). Keep one of them."
            )
    return tuple(annotated)


def join_words(words: Sequence[str], tags: Sequence[str], location: str) -> tuple[str, tuple[Entity, ...]]:
    """Return the text of a CoNLL sentence, its words joined by spaces, and its entities. tags: those of the words."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    spans = (
        Entity(starts[first], starts[last] + len(words[last]), kind, f"{location} word {first + 1}")
        for kind, first, last in entities(tags)
    )
    return " ".join(words), tuple(spans)


def tags_of(labels: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """Return the tags of words for entities of these labels: O, then those of each label."""
    return (OUTSIDE, *(f"{prefix}-{label}" for label in labels for prefix in _PREFIXES[scheme]))


def labels_of(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of the entities that have these tags."""
    return tuple(dict.fromkeys(split_tag(tag)[1] for tag in tags if tag != OUTSIDE))


def find_words(texts: Sequence[str], tokenizer: Tokenizer, aggregation: Aggregation) -> list[Pieces]:
    """Return the tokens and the words of texts; with aggregation "simple", every token is a word.

    A word's span has no white space or control characters at its ends, and includes the combining marks behind it. It
    is empty if the word is only the tokenizer's mark of a beginning.
    """
    pieces = []
    for text, (ids, offsets) in zip(texts, tokenizer.encode_offsets(texts), strict=True):
        starts = np.ones(len(ids), bool) if aggregation == "simple" else tokenizer.word_starts(ids)
        words = np.append(np.flatnonzero(starts), len(ids))
        pieces.append(Pieces(ids, offsets, words, _word_spans(text, offsets, words)))
    return pieces


def _word_spans(text: str, offsets: np.ndarray, words: np.ndarray) -> np.ndarray:
    spans = np.zeros((len(words) - 1, 2), np.int64)
    if not len(spans):
        return spans
    firsts = np.minimum.reduceat(offsets[:, 0], words[:-1]).tolist()
    lasts = np.maximum.reduceat(offsets[:, 1], words[:-1]).tolist()
    before = 0  # no two words share a character
    for index, (start, end, limit) in enumerate(zip(firsts, lasts, [*firsts[1:], len(text)], strict=True)):
        start = max(start, before)
        while end > start and _is_blank(text[end - 1]):
            end -= 1
        # SentencePiece joins a character that becomes a space, such as a lone accent, to the word behind it.
        start = end - len(_SPACE.split(text[start:end])[-1]) if start < end else start
        while start < len(text) and _is_blank(text[start]):
            start += 1
        while start < end < limit and unicodedata.category(text[end]).startswith("M"):  # tokens leave marks out
            end += 1
        before = max(start, end)
        spans[index] = start, before
    return spans


def _is_blank(character: str) -> bool:
    """Return whether a character is white space, or one that normalisers remove: a control or format character."""
    return character.isspace() or unicodedata.category(character) in ("Cc", "Cf")


def tag_words(spans: Sequence[Entity], text: str, pieces: Pieces, tags: Sequence[str]) -> np.ndarray:
    """Return the index in `tags` of each word's tag, (w,); raises UserError naming a span that splits a word."""
    index, word_spans = {tag: i for i, tag in enumerate(tags)}, pieces.spans
    indices = np.full(len(word_spans), index[OUTSIDE], np.int64)
    for span in spans:
        inside = np.flatnonzero((word_spans[:, 0] < span.end) & (word_spans[:, 1] > span.start))
        shown = f"{span.location} ({span.start} to {span.end}, {text[span.start : span.end][:40]!r})"
        if not len(inside):
            raise UserError(f"{shown} holds no token. Remove it, or extend it to a word.")
        start, end = int(word_spans[inside[0], 0]), int(word_spans[inside[-1], 1])
        if start < span.start or end > span.end:
            raise UserError(
                f"{shown} splits a word of the tokenizer. Use {start} to {end}, {text[start:end][:40]!r}. With "
                'own.aggregation = "simple" words are single tokens.'
            )
        whole, last = f"I-{span.label}", f"E-{span.label}"
        indices[inside] = index[whole]
        indices[inside[-1]] = index.get(last, index[whole])
        alone = index.get(f"S-{span.label}") if len(inside) == 1 else None
        indices[inside[0]] = index[f"B-{span.label}"] if alone is None else alone
    return indices


class TextWindow(NamedTuple):
    """A row: [CLS], the tokens of a text from token `first` on, and [SEP].

    text: index of the text. best: for each of its tokens, whether it has more context here than in any other window.
    """

    text: int
    first: int
    best: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class TextWindows:
    """Texts as overlapping windows. pieces: each text's tokens and words. rows: a row for each of `windows`."""

    pieces: list[Pieces]
    windows: list[TextWindow]
    rows: Rows

    def join(self, slots: Sequence[Any], outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return outputs of batches (B,L,C) as (n,C) for the n tokens of each text, from the one with most context."""
        joined = [np.zeros((len(pieces.ids), outputs[0].shape[-1])) for pieces in self.pieces] if outputs else []
        for slot, output in zip(slots, outputs, strict=True):
            for row, values in zip(slot.rows, output, strict=False):
                text, first, best = self.windows[row]
                joined[text][first : first + len(best)][best] = values[1 : 1 + len(best)][best]
        return joined


def make_text_windows(
    keys: Sequence[str],
    pieces: list[Pieces],
    tokenizer: Tokenizer,
    max_length: int,
    padding: int,
    tags: Sequence[np.ndarray] | None = None,
    every_token: bool = False,
) -> TextWindows:
    """Cut texts into windows of at most `max_length` tokens; raises ConfigError if there is no room for a token.

    keys: names of the texts. padding: as in Rows. tags: those of each text's words, (w,), as labels: of a word's first
    token or, with `every_token`, of all its tokens. Each token has its label in one window.
    """
    if (room := max_length - 2) < 1:
        raise ConfigError(f"max_length = {max_length} leaves no room for a text. Use at least 3.")
    cls, sep = ([special] for special in (tokenizer.specials.cls, tokenizer.specials.sep))
    ids, labels, counted = [], [np.zeros(0, np.int32)], [np.zeros(0, bool)]
    windows: list[TextWindow] = []
    for text, (tokens, _, words, _) in enumerate(pieces):
        cuts = cut(len(tokens), room, max(1, room - room // _OVERLAP))
        label = np.zeros(len(tokens), np.int32) if tags is None else np.repeat(tags[text], np.diff(words))
        counts = np.isin(np.arange(len(tokens)), words) | every_token
        for first, best in cuts or [(0, np.zeros(0, bool))]:
            span = slice(first, first + len(best))
            if tags is not None and first and not (best & counts[span]).any():
                continue  # nothing to learn
            ids.append(np.concatenate([cls, tokens[span], sep]))
            labels += [[0], label[span], [0]]
            counted += [[False], best & counts[span], [False]]
            windows.append(TextWindow(text, first, best))
    columns: dict[str, Any] = {}
    if tags is not None:
        columns = {"label": np.concatenate(labels).astype(np.int32), "first": np.concatenate(counted)}
    rows = join_rows((keys[window.text] for window in windows), ids, tokenizer, max_length, padding, **columns)
    return TextWindows(pieces=pieces, windows=windows, rows=rows)


def legal_steps(tags: Sequence[str]) -> np.ndarray:
    """Return 0 where a word with the first tag may precede one with the second, and -inf elsewhere, (C,C).

    I and E continue an entity of their label. If a tag begins with E or S, an entity must end with one of these.
    """
    pairs = [split_tag(tag) for tag in tags]
    closed = any(prefix in "ES" for prefix, _ in pairs)
    legal = [
        [
            before in "BI" and label == second if prefix in "IE" else not (closed and before in "BI")
            for prefix, second in pairs
        ]
        for before, label in pairs
    ]
    return np.where(legal, 0.0, -np.inf)


def best_path(scores: np.ndarray, steps: np.ndarray, outside: int) -> np.ndarray:
    """Return the tags (w,) with the greatest sum of scores (w,C) and of `steps` (C,C) between them (Viterbi).

    outside: the index of O, which stands before the first and behind the last word.
    """
    if not len(scores):
        return np.zeros(0, np.int64)
    total, back = scores[0] + steps[outside], []
    for score in scores[1:]:
        routes = total[:, None] + steps
        back.append(routes.argmax(0))
        total = routes.max(0) + score
    path = [int((total + steps[:, outside]).argmax())]
    for previous in reversed(back):
        path.append(int(previous[path[-1]]))
    return np.array(path[::-1])


def by_word(chances: np.ndarray, words: np.ndarray, aggregation: Aggregation) -> np.ndarray:
    """Return the probabilities (w,C) of each word's tags, from those of its tokens (n,C).

    They are those of its first token, of the token with the highest probability (max), or the mean over its tokens.
    words: as in Pieces.
    """
    if aggregation == "average" and len(chances):
        return np.add.reduceat(chances, words[:-1]) / np.diff(words)[:, None]
    firsts = words[:-1]
    if aggregation == "max":
        firsts = np.array([a + chances[a:b].max(-1).argmax() for a, b in itertools.pairwise(words)], np.int64)
    return chances[firsts]


def entity_records(text: str, pieces: Pieces, tags: Sequence[str], chances: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield `start`, `end`, `label`, `score` and `text` of the entities that the tags of a text's words form.

    chances: the probability of each word's tag; their mean is the score.
    """
    for label, first, last in entities(tags):
        start, end = int(pieces.spans[first, 0]), int(pieces.spans[last, 1])
        if start < end:
            score = round(float(np.mean(chances[first : last + 1])), 6)
            yield {"start": start, "end": end, "label": label, "score": score, "text": text[start:end]}
