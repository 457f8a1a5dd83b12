"""Encode examples as rows, batch them in a few lengths, and restore a model's outputs to the order of the examples.

A row is [CLS] A [SEP] or [CLS] A [SEP] B [SEP] (Devlin et al. 2019; run_classifier.py).
"""

import functools
import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, cast

import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.data.rng import fold, fold_arrays
from bertzoo.data.tokenizers.vocabulary import Specials, Tokenizer
from bertzoo.tasks.task import Example, Kind

_ROWS, _BATCHES = 1, 2  # keys of the random streams that shuffle rows and batches
MULTIPLE = 8  # lengths of batches are multiples of this number, or max_length


class Slot(NamedTuple):
    """The plan of a batch: the indices of its rows (no more than the batch size), and their padded length in tokens."""

    rows: np.ndarray
    length: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """N encoded examples with T tokens in all, concatenated.

    ids: (T,) int32, token ids.
    lengths: (N,), number of tokens of each row.
    middle: (N,), number of tokens before the second text; without one, the length of the row.
    cut: (N,) bool, whether texts were cut.
    label: None without labels. Else one per example, (N,) int32 or float32; for multi_label, 1 or 0 for each of C
    labels, (N,C) int32; for words, one per token, (T,) int32.
    first: (T,) bool, whether the token is labelled, as the first of a word is; None without labels of tokens.
    words: (N,), number of words of each example; None without words.
    padding: least number of padding tokens after a row, as far as max_length allows. With enough of them, a model whose
    outputs depend on padding gives a row the same outputs in any batch.
    """

    keys: tuple[str, ...]
    ids: np.ndarray
    lengths: np.ndarray
    middle: np.ndarray
    cut: np.ndarray
    specials: Specials
    max_length: int
    label: np.ndarray | None = None
    first: np.ndarray | None = None
    words: np.ndarray | None = None
    padding: int = 0

    def __len__(self) -> int:
        return len(self.lengths)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """Index in `ids` of each row's first token, (N,)."""
        return np.cumsum(self.lengths) - self.lengths

    @functools.cached_property
    def held(self) -> np.ndarray:
        """Number of tokens of each row and its least padding together, at most max_length, (N,)."""
        return np.minimum(self.lengths + self.padding, self.max_length)

    @property
    def digest(self) -> str:
        """SHA-256 of the ids, the lengths and the labels, in hexadecimal."""
        arrays = [self.ids, self.lengths, self.middle, *([] if self.label is None else [self.label])]
        return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()

    def plan(self, batch_size: int, lengths: Sequence[int], seed: int | None = None, epoch: int = 0) -> list[Slot]:
        """Return the plan of an epoch's batches, as `plan_batches` does."""
        return plan_batches(self.held, batch_size, lengths, seed, epoch)

    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]:
        """Return the arrays of a planned batch, by name.

        They are `input_ids, token_type_ids, attention_mask` (B,L) int32 and `row_weight` (B,) float32, with labels also
        `label` (B,) int32 or float32 or, for words, `label` (B,L) int32 and `label_weight` (B,L) float32. Rows added to
        reach `batch_size` have only [CLS] and weight 0.
        """
        count, length = len(slot.rows), slot.length
        inside = np.arange(length) < self.lengths[slot.rows, None]
        positions = np.where(inside, self.starts[slot.rows, None] + np.arange(length), 0)
        types = inside & (np.arange(length) >= self.middle[slot.rows, None])
        ids = np.full((batch_size, length), self.specials.pad, np.int32)
        ids[count:, 0] = self.specials.cls
        ids[:count] = np.where(inside, self.ids[positions], self.specials.pad)
        attention = np.zeros((batch_size, length), np.int32)
        attention[:count], attention[count:, 0] = inside, 1
        batch = {
            "input_ids": ids,
            "token_type_ids": padded(types.astype(np.int32), batch_size),
            "attention_mask": attention,
            "row_weight": padded(np.ones(count, np.float32), batch_size),
        }
        if self.label is not None and self.first is not None:
            weight = inside & self.first[positions]
            batch["label"] = padded(np.where(weight, self.label[positions], 0).astype(np.int32), batch_size)
            batch["label_weight"] = padded(weight.astype(np.float32), batch_size)
        elif self.label is not None:
            batch["label"] = padded(self.label[slot.rows], batch_size)
        return batch

    def restore(self, slots: Sequence[Slot], outputs: Sequence[np.ndarray]) -> np.ndarray:
        """Return batches' outputs (B,...) as (N,...) in the examples' order; raises ValueError if a row is missing."""
        order = np.concatenate([slot.rows for slot in slots])
        if not np.array_equal(np.sort(order), np.arange(len(self))):
            raise ValueError(f"the batches hold {len(order)} rows, not each of the {len(self)} rows once")
        ordered = np.concatenate([output[: len(slot.rows)] for slot, output in zip(slots, outputs, strict=True)])
        return ordered[np.argsort(order)]

    def restore_words(self, slots: Sequence[Slot], outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return, for each example, the outputs at its words' first tokens; -1 for a word that was cut off.

        outputs: (B,L) for each batch.
        """
        assert self.first is not None and self.words is not None
        longest = max(slot.length for slot in slots)
        restored = self.restore(slots, [np.pad(out, ((0, 0), (0, longest - out.shape[1]))) for out in outputs])
        by_example = []
        for row, (start, length, words) in enumerate(zip(self.starts, self.lengths, self.words, strict=True)):
            values = restored[row, :length][self.first[start : start + length]]
            by_example.append(np.concatenate([values, np.full(words - len(values), -1, values.dtype)]))
        return by_example


def join_rows(
    keys: Iterable[str], ids: Sequence[np.ndarray], tokenizer: Tokenizer, max_length: int, padding: int, **columns: Any
) -> Rows:
    """Return the token ids of each row, (L,), as Rows. columns: further fields; without them, rows have whole texts."""
    lengths = np.array([len(row) for row in ids], np.int64)
    columns = {"middle": lengths, "cut": np.zeros(len(ids), bool)} | columns
    return Rows(
        keys=tuple(keys),
        ids=np.concatenate([np.zeros(0, np.int32), *ids]).astype(np.int32),
        lengths=lengths,
        specials=tokenizer.specials,
        max_length=max_length,
        padding=padding,
        **columns,
    )


def plan_batches(
    held: np.ndarray, batch_size: int, lengths: Sequence[int], seed: int | None = None, epoch: int = 0
) -> list[Slot]:
    """Return the plan of an epoch's batches: every row once; at most one batch has fewer rows than `batch_size`.

    held: number of tokens of each row, (N,). lengths: the padded lengths that a batch may have, in tokens.

    Without a seed, rows are ordered by length. With a seed, rows are shuffled, and go to the shortest length that holds
    them. Rows that do not fill a batch go to the next length. Then batches are shuffled. Equal arguments give equal
    batches.
    """
    sizes = np.array(sorted(lengths))

    def slot(rows: np.ndarray) -> Slot:
        return Slot(rows, int(sizes[np.searchsorted(sizes, held[rows].max())]))

    if seed is None:
        order = np.argsort(held, kind="stable")
        return [slot(order[i : i + batch_size]) for i in range(0, len(held), batch_size)]
    order = _shuffled(np.arange(len(held)), fold(seed, _ROWS, epoch))
    bucket = np.searchsorted(sizes, held[order])
    slots, rest = [], np.zeros(0, np.int64)
    for size in range(len(sizes)):
        rows = np.concatenate([rest, order[bucket == size]])
        full = len(rows) - len(rows) % batch_size
        slots += [slot(rows[i : i + batch_size]) for i in range(0, full, batch_size)]
        rest = rows[full:]
    slots += [slot(rest)] if len(rest) else []
    return [slots[i] for i in _shuffled(np.arange(len(slots)), fold(seed, _BATCHES, epoch))]


def bucket_lengths(rows: Sequence[Rows], buckets: int, max_length: int) -> tuple[int, ...]:
    """Return at most `buckets` lengths of batches that hold all rows with the least padding.

    Lengths are multiples of MULTIPLE, or max_length. With one bucket, the only length is max_length, as in BERT's code.
    """
    if buckets == 1:
        return (max_length,)
    held = np.minimum(-(-np.concatenate([group.held for group in rows]) // MULTIPLE) * MULTIPLE, max_length)
    sizes, counts = (array.tolist() for array in np.unique(held, return_counts=True))
    shorter = [0, *itertools.accumulate(counts)]  # shorter[n]: number of rows of the first n sizes

    # best[n]: (number of tokens with padding, the chosen lengths) for the rows of the first n sizes.
    best: list[tuple[float, tuple[int, ...]]] = [(0, ()), *[(math.inf, ())] * len(sizes)]
    for _ in range(buckets):
        best[1:] = [
            min(
                (tokens + (shorter[upto] - shorter[start]) * length, (*lengths, length))
                for start, (tokens, lengths) in enumerate(best[:upto])
            )
            for upto, length in enumerate(sizes, start=1)
        ]
    return best[-1][1]


def _shuffled(values: np.ndarray, key: int) -> np.ndarray:
    return values[np.argsort(fold_arrays(key, np.arange(len(values))), kind="stable")]


def padded(array: np.ndarray, rows: int) -> np.ndarray:
    """Return an array (n,…) with zeros behind it, (rows,…)."""
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])


_LEAST = {"a text": 3, "two texts": 5}  # least max_length: [CLS], and for each text a token and [SEP]


def encode(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, kind: Kind, padding: int = 0) -> Rows:
    """Return examples as rows of at most `max_length` tokens; raises ConfigError if that is too short.

    There must be room for two texts, or for one if `kind` is "texts". A second text without tokens is omitted, as in
    BERT's code. The rows have labels if every example has a label.
    padding: least number of padding tokens after a row, as in Rows.
    """
    texts = "a text" if kind == "texts" else "two texts"
    if max_length < _LEAST[texts]:
        raise ConfigError(f"max_length = {max_length} leaves no room for {texts}. Use at least {_LEAST[texts]}.")
    labelled = all(example.label is not None for example in examples)
    if kind == "tokens":
        columns = _tokens(examples, tokenizer, max_length, labelled)
    else:
        columns = _texts(examples, tokenizer, max_length)
        if labelled:
            dtype = np.float32 if kind == "regression" else np.int32
            columns["label"] = np.array([example.label for example in examples], dtype)
    keys = (example.key for example in examples)
    return join_rows(keys, tokenizer=tokenizer, max_length=max_length, padding=padding, **columns)


def encode_pieces(
    texts: Sequence[str], tokenizer: Tokenizer, max_length: int, padding: int = 0, *, whole: bool = True
) -> tuple[Rows, np.ndarray]:
    """Cut texts into pieces of about equal length; return the pieces as rows, and the index of each one's text, (R,).

    A text that fits has one piece, the row that `encode` returns. whole: if False, a longer text has one piece too, as
    many tokens as fit. The rows of longer texts are `cut`. Other arguments and errors: as in `encode`.
    """
    if max_length < (least := _LEAST["a text"]):
        raise ConfigError(f"max_length = {max_length} leaves no room for a text. Use at least {least}.")
    pieces, owner, cut = [], [], []
    for text, ids in enumerate(tokenizer.encode_batch(texts)):
        count = max(1, -(-len(ids) // (max_length - 2)))
        chunks = np.array_split(ids, count) if whole else [ids[: max_length - 2]]
        pieces += chunks
        owner += [text] * len(chunks)
        cut += [count > 1] * len(chunks)
    cls, sep = ([special] for special in (tokenizer.specials.cls, tokenizer.specials.sep))
    ids = [np.concatenate([cls, piece, sep]) for piece in pieces]
    rows = join_rows(map(str, range(len(ids))), ids, tokenizer, max_length, padding, cut=np.array(cut, bool))
    return rows, np.array(owner)


def _texts(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> dict[str, Any]:
    a = tokenizer.encode_batch([example.text_a for example in examples])
    b = tokenizer.encode_batch([example.text_b or "" for example in examples])
    a_count, b_count = (np.array([len(text) for text in texts], np.int64) for texts in (a, b))
    paired = b_count > 0
    a_kept, b_kept = truncated(a_count, b_count, max_length - 2 - paired)
    specials = ([tokenizer.specials.cls], [tokenizer.specials.sep], [])
    cls, sep, none = (np.array(special, np.int32) for special in specials)
    ids = [
        np.concatenate([cls, a[i][:a_end], sep, b[i][:b_end], sep if pair else none])
        for i, (a_end, b_end, pair) in enumerate(zip(a_kept, b_kept, paired, strict=True))
    ]
    return {"ids": ids, "middle": a_kept + 2, "cut": (a_kept < a_count) | (b_kept < b_count)}


def _tokens(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, labelled: bool) -> dict[str, Any]:
    """Encode examples whose words have labels, if `labelled`, at their first tokens; a word without tokens is [UNK]."""
    texts = [
        (*example.words[:1], *map(tokenizer.after_space, example.words[1:])) if example.words else ()
        for example in examples
    ]
    words = sorted({word for text in texts for word in text})
    pieces = {word: ids.tolist() for word, ids in zip(words, tokenizer.encode_batch(words), strict=True)}
    specials, rows, cut = tokenizer.specials, [], []
    for example, text in zip(examples, texts, strict=True):
        tags = cast(tuple, example.label) if labelled else repeat(0)
        tokens = [
            (token, nth == 0, 0 if nth else tag)
            for word, tag in zip(text, tags, strict=False)
            for nth, token in enumerate(pieces[word] or [specials.unk])
        ]
        rows.append(np.array([(specials.cls, 0, 0), *tokens[: max_length - 2], (specials.sep, 0, 0)], np.int32))
        cut.append(len(tokens) > max_length - 2)
    _, first, label = np.concatenate([np.zeros((0, 3), np.int32), *rows]).T
    return {
        **{"ids": [row[:, 0] for row in rows], "cut": np.array(cut, bool), "first": first.astype(bool)},
        **({"label": label.copy()} if labelled else {}),
        "words": np.array([len(example.words or ()) for example in examples], np.int64),
    }


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
