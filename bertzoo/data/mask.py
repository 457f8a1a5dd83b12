"""Masked language modelling: choose the tokens to predict and replace them.

Every random draw is a hash of (seed, epoch, row, position), so that every host masks a row in the same way.
The units to mask are:

- single tokens or whole words (BERT: google-research/bert create_pretraining_data.py);
- n-grams of one to three words, with probability proportional to 1/n (ALBERT, Lan et al. 2020, equation 1);
- spans of words with geometric length (SpanBERT, Joshi et al. 2020, section 3.1: p = 0.2, at most 10).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError
from bertzoo.data.rng import below, fold_arrays, uniform
from bertzoo.data.tokenizers.vocabulary import Tokenizer

_SPAN_P = 0.2
_LONGEST = {"token": 1, "word": 1, "ngram": 3, "span": 10}  # most words of a masked unit if max_span = 0
_ORDER, _LENGTH, _ACTION, _RANDOM = range(4)  # independent streams of draws


@dataclass(frozen=True, kw_only=True)
class Masking:
    """The number of tokens of a sequence to predict, their units and replacements; defaults as in BERT."""

    # unit that is masked: a token, a whole word, an n-gram of words (ALBERT), or a span of words (SpanBERT)
    kind: Literal["token", "word", "ngram", "span"] = "token"
    share: float = 0.15  # predicted tokens / all tokens of a sequence, special tokens included
    mask_share: float = 0.8  # share of the predicted tokens that become [MASK]
    random_share: float = 0.1  # share of the predicted tokens that become random tokens; the rest remain unchanged
    max_span: int = 0  # most words of an n-gram or span; 0: 3 for n-grams, 10 for spans, as in the papers

    def __post_init__(self) -> None:
        check_range(self, "share", above=0, below=1, advice="Use 0.15, as in BERT.")
        if min(self.mask_share, self.random_share) < 0 or self.mask_share + self.random_share > 1 + 1e-9:
            raise ConfigError(
                f"mask_share = {self.mask_share} and random_share = {self.random_share} must be 0 or more and add up "
                "to at most 1. Use 0.8 and 0.1, as in BERT."
            )
        check_range(self, "max_span", least=0, most=1000, advice="Use 0 for the papers' lengths.")
        if self.max_span and _LONGEST[self.kind] == 1:
            kinds = ", ".join(kind for kind, words in _LONGEST.items() if words > 1)
            raise ConfigError(
                f"max_span = {self.max_span} does not apply to kind = {self.kind!r}, only to {kinds}. Remove it."
            )

    @property
    def span_probabilities(self) -> np.ndarray:
        """Probabilities (N,) that a masked unit has 1, 2, … N words; N is the largest number of words."""
        words = np.arange(1, (self.max_span or _LONGEST[self.kind]) + 1)
        weights = (1 - _SPAN_P) ** (words - 1) if self.kind == "span" else 1 / words
        return weights / weights.sum()


class LinearShare(NamedTuple):
    """The share of tokens to predict, which changes linearly from `first` to `last` over `steps` training steps."""

    first: float
    last: float
    steps: int

    def at(self, step: int) -> float:
        """Return the share at a step, counted from 0."""
        return float(np.interp(step, (0, max(self.steps - 1, 1)), (self.first, self.last)))


def mask(
    batch: dict[str, np.ndarray],
    masking: Masking,
    tokenizer: Tokenizer,
    *,
    max_predictions: int,
    seed: int,
    epochs: np.ndarray,
    records: np.ndarray,
) -> dict[str, np.ndarray]:
    """Mask `input_ids` and add `masked_positions`, `masked_ids` (B, P) int32 and `masked_weights` (B, P) float32.

    P is max_predictions. A row of n tokens gets min(P, max(1, round(share * n))) predictions (halves round to even), or
    fewer if the next whole word, n-gram or span would exceed this number. Positions ascend; unused predictions have
    position, id and weight 0.

    epochs, records: (B,), each row's epoch and its index in the RowPlan. They and the seed determine every random draw.
    """
    ids, attention, specials = batch["input_ids"], batch["attention_mask"] > 0, tokenizer.specials
    candidates = attention & (ids != specials.cls) & (ids != specials.sep) & (ids != specials.pad)
    count = np.maximum(1, np.rint(masking.share * attention.sum(1))).astype(np.int64)
    count = np.minimum(np.minimum(count, max_predictions), candidates.sum(1))
    row_keys = fold_arrays(seed, np.asarray(epochs), np.asarray(records))
    keys = fold_arrays(row_keys[:, None] ^ np.arange(ids.shape[1], dtype=np.uint64))
    # chosen (B, L) bool: tokens to predict. owners (B, L): position of their unit's first token.
    if masking.kind == "token":
        chosen, owners = _choose_tokens(candidates, count, fold_arrays(_ORDER, keys)), None
    else:
        chosen, owners = _choose_words(ids, candidates, count, keys, masking, tokenizer)
    # Positions and a mask of those in use: (B, P), ascending, padded with 0.
    row, column = np.nonzero(chosen)
    counts = chosen.sum(1)
    positions = np.zeros((len(ids), max_predictions), np.int64)
    positions[row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)] = column
    used = np.arange(max_predictions) < counts[:, None]
    labels = np.where(used, np.take_along_axis(ids, positions, 1), 0)
    # SpanBERT draws one action (mask, random, keep) per span; the other kinds draw one per token.
    actors = positions if owners is None or masking.kind != "span" else np.take_along_axis(owners, positions, 1)
    action = uniform(fold_arrays(_ACTION, np.take_along_axis(keys, actors, 1)))
    random_ids = below(fold_arrays(_RANDOM, np.take_along_axis(keys, positions, 1)), tokenizer.vocab_size)
    replaced = np.where(action < masking.mask_share, specials.mask, labels)
    randomly = (action >= masking.mask_share) & (action < masking.mask_share + masking.random_share)
    replaced = np.where(randomly, random_ids, replaced)
    masked = ids.copy()
    row, slot = np.nonzero(used)
    masked[row, positions[row, slot]] = replaced[row, slot]
    return {
        **batch,
        "input_ids": masked,
        "masked_positions": positions.astype(np.int32),
        "masked_ids": labels.astype(np.int32),
        "masked_weights": used.astype(np.float32),
    }


def _choose_tokens(candidates: np.ndarray, count: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Choose the `count[i]` candidates of row i with the smallest `keys`; return (B, L) bool, True where chosen."""
    most = max(1, int(count.max(initial=0)))
    keys = np.where(candidates, keys, np.uint64(2**64 - 1))
    smallest = np.sort(np.partition(keys, most - 1, 1)[:, :most], 1)
    limit = np.take_along_axis(smallest, np.maximum(count - 1, 0)[:, None], 1)
    return candidates & (keys <= limit) & (count > 0)[:, None]


def _choose_words(
    ids: np.ndarray, candidates: np.ndarray, count: np.ndarray, keys: np.ndarray, masking: Masking, tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray]:
    """Choose at most `count[i]` tokens of row i, in units of whole words.

    Returns the chosen tokens (B, L) bool, and for each the position of its unit's first token (B, L).

    Every row tries its words as starts of units in random order, one in each pass of the loop. As in the papers' code,
    a unit that contains a chosen word is skipped. If a unit has more tokens than the row may still choose, words at the
    unit's end are left out. If not even its first word fits, the unit is skipped.
    """
    rows, length = ids.shape
    every = np.arange(rows)
    before = np.zeros_like(candidates)
    before[:, 1:] = candidates[:, :-1] & tokenizer.continuable[ids[:, :-1]]
    starts = candidates & ~(tokenizer.continuation[ids] & before)
    # Starts of words in the random order of their keys, then all other positions.
    order = np.argsort(np.where(starts, fold_arrays(_ORDER, keys), np.uint64(2**64 - 1)), 1)
    draws = uniform(fold_arrays(_LENGTH, keys))
    lengths = 1 + np.searchsorted(np.cumsum(masking.span_probabilities)[:-1], draws, side="right")
    # word_end (B, L + 1): the index after a position's word or, outside words, the position.
    columns = np.arange(length + 1)
    boundary = np.where(starts | ~candidates, columns[:length], length)
    word_end = np.full((rows, length + 1), length)
    word_end[:, :-2] = np.minimum.accumulate(boundary[:, :0:-1], 1)[:, ::-1]
    word_end[:, :-1] = np.where(candidates, word_end[:, :-1], columns[:length])
    chosen = np.zeros((rows, length + 1), bool)  # the last column takes discarded writes
    owners = np.zeros((rows, length + 1), np.int64)
    remaining = count.copy()
    for rank in range(int(starts.sum(1).max(initial=0))):
        begin = end = order[:, rank]
        trying = starts[every, begin] & (remaining > 0)
        words = np.where(trying, lengths[every, begin], 0)
        for word in range(int(words.max())):
            follows = word_end[every, end]
            grows = (word < words) & (follows > end) & (follows - begin <= remaining)
            words = np.where(grows & chosen[every, end], 0, words)
            end = np.where(grows, follows, end)
        size = np.where(words > 0, end - begin, 0)
        span = np.arange(int(size.max()))
        inside = np.where(span < size[:, None], begin[:, None] + span, length)
        chosen[every[:, None], inside] = True
        owners[every[:, None], inside] = begin[:, None]
        remaining -= size
        if not remaining.any():
            break
    return chosen[:, :length], owners[:, :length]
