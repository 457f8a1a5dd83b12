"""Encode examples as token ids: [CLS] A [SEP], or [CLS] A [SEP] B [SEP] (Devlin et al. 2019; run_classifier.py)."""

from collections.abc import Sequence
from itertools import repeat
from typing import Any, cast

import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.tasks.rows import Rows, join_rows
from bertzoo.tasks.task import Example, Kind

_TOGETHER = 10_000  # texts per call of the tokenizer
_LEAST = {"a text": 3, "two texts": 5}  # least max_length: [CLS], and for each text a token and [SEP]


def encode(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, kind: Kind, padding: int = 0) -> Rows:
    """Return examples as rows of at most `max_length` tokens; raises ConfigError if that is too short.

    There must be room for two texts, or for one if `kind` is "texts". A second text without tokens is left out, as in
    BERT's code. The rows have labels if every example has a label.
    padding: least number of padding tokens after a row, as in Rows.
    """
    texts = "a text" if kind == "texts" else "two texts"
    if max_length < _LEAST[texts]:
        raise ConfigError(f"max_length = {max_length} leaves no room for {texts}. Use at least {_LEAST[texts]}.")
    known = all(example.label is not None for example in examples)
    if kind == "tokens":
        columns = _tokens(examples, tokenizer, max_length, known)
    else:
        columns = _texts(examples, tokenizer, max_length)
        if known:
            dtype = np.float32 if kind == "regression" else np.int32
            columns["label"] = np.array([example.label for example in examples], dtype)
    keys = (example.key for example in examples)
    return join_rows(keys, tokenizer=tokenizer, max_length=max_length, padding=padding, **columns)


def encode_pieces(
    texts: Sequence[str], tokenizer: Tokenizer, max_length: int, padding: int = 0, *, whole: bool = True
) -> tuple[Rows, np.ndarray]:
    """Cut texts into pieces of about equal length; return the pieces as rows, and the index of each one's text, (R,).

    A text that fits has one piece, the row that `encode` makes. whole: if False, a longer text has one piece too, as
    many tokens as fit. The rows of longer texts are `cut`. Other arguments and errors: as in `encode`.
    """
    if max_length < (least := _LEAST["a text"]):
        raise ConfigError(f"max_length = {max_length} leaves no room for a text. Use at least {least}.")
    pieces, owner, cut = [], [], []
    for text, ids in enumerate(_tokenised(tokenizer, texts)):
        count = max(1, -(-len(ids) // (max_length - 2)))
        parts = np.array_split(ids, count) if whole else [ids[: max_length - 2]]
        pieces += parts
        owner += [text] * len(parts)
        cut += [count > 1] * len(parts)
    cls, sep = ([special] for special in (tokenizer.specials.cls, tokenizer.specials.sep))
    ids = [np.concatenate([cls, piece, sep]) for piece in pieces]
    rows = join_rows(map(str, range(len(ids))), ids, tokenizer, max_length, padding, cut=np.array(cut, bool))
    return rows, np.array(owner)


def _texts(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> dict[str, Any]:
    a = _tokenised(tokenizer, [example.text_a for example in examples])
    b = _tokenised(tokenizer, [example.text_b or "" for example in examples])
    a_count, b_count = (np.array([len(text) for text in texts], np.int64) for texts in (a, b))
    paired = b_count > 0
    a_kept, b_kept = truncated(a_count, b_count, max_length - 2 - paired)
    specials = ([tokenizer.specials.cls], [tokenizer.specials.sep], [])
    cls, sep, none = (np.array(part, np.int32) for part in specials)
    ids = [
        np.concatenate([cls, a[i][:keep], sep, b[i][:other], sep if pair else none])
        for i, (keep, other, pair) in enumerate(zip(a_kept, b_kept, paired, strict=True))
    ]
    return {"ids": ids, "middle": a_kept + 2, "cut": (a_kept < a_count) | (b_kept < b_count)}


def _tokens(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, known: bool) -> dict[str, Any]:
    """Encode examples whose words have labels, if `known`, at their first tokens; a word without tokens is [UNK]."""
    words = sorted({word for example in examples for word in example.words or ()})
    pieces = {word: ids.tolist() for word, ids in zip(words, _tokenised(tokenizer, words), strict=True)}
    specials, rows, cut = tokenizer.specials, [], []
    for example in examples:
        tags = cast(tuple, example.label) if known else repeat(0)
        tokens = [
            (token, nth == 0, 0 if nth else tag)
            for word, tag in zip(example.words or (), tags, strict=False)
            for nth, token in enumerate(pieces[word] or [specials.unk])
        ]
        rows.append(np.array([(specials.cls, 0, 0), *tokens[: max_length - 2], (specials.sep, 0, 0)], np.int32))
        cut.append(len(tokens) > max_length - 2)
    _, first, label = np.concatenate([np.zeros((0, 3), np.int32), *rows]).T
    return {
        **{"ids": [row[:, 0] for row in rows], "cut": np.array(cut, bool), "first": first.astype(bool)},
        **({"label": label.copy()} if known else {}),
        "words": np.array([len(example.words or ()) for example in examples], np.int64),
    }


def _tokenised(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    batches = (texts[start : start + _TOGETHER] for start in range(0, len(texts), _TOGETHER))
    return [ids for batch in batches for ids in tokenizer.encode_batch(batch)]


def truncated(a: np.ndarray, b: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many tokens the first and the second text of each pair keep, (N,) each, to fit into `room` tokens.

    a, b: numbers of tokens (N,). As in BERT's code, the longer text, or the second of equal ones, loses its last token
    until both fit. So the shorter text stays whole, or both get half of the room.
    """
    a_half, b_half = room - room // 2, room // 2
    fits = a + b <= room
    a_kept = np.where(fits | (a <= a_half), a, np.where(b <= b_half, room - b, a_half))
    b_kept = np.where(fits | (b <= b_half), b, np.where(a <= a_half, room - a, b_half))
    return np.minimum(a, a_kept), np.minimum(b, b_kept)
