"""Masking: properties of every kind, a plain transcription of the word units, and the statistics of the papers."""

from typing import Literal, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertzoo.data.mask import Masking, mask
from bertzoo.data.rng import fold, fold_arrays, uniform
from bertzoo.data.tokenizers.vocabulary import Specials

Kind = Literal["token", "word", "ngram", "span"]
KINDS: tuple[Kind, ...] = get_args(Kind)
WORD_KINDS: tuple[Kind, ...] = ("word", "ngram", "span")  # choose whole words
V = 200


class Vocabulary:
    """What masking reads of a tokenizer: 5 special tokens, then words, the last 80 of which continue words."""

    vocab_size = V
    specials = Specials(pad=0, unk=1, cls=2, sep=3, mask=4)
    continuation = np.arange(V) >= 120
    continuable = np.arange(V) != 60


def rows(seed, count, length):
    """Random rows [CLS] A [SEP] B [SEP] of many lengths, some with one segment."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((count, length), np.int32)
    attention = np.zeros((count, length), np.int32)
    for row in range(count):
        total = rng.integers(3, length + 1)
        ids[row, :total] = rng.integers(5, V, total)
        ids[row, 0], ids[row, total - 1] = 2, 3
        if total > 8:
            ids[row, rng.integers(2, total - 2)] = 3
        attention[row, :total] = 1
    return {"input_ids": ids, "attention_mask": attention}


def apply(batch, masking, predictions=20, seed=7, epochs=None, records=None):
    count = len(batch["input_ids"])
    epochs = np.zeros(count, np.int64) if epochs is None else epochs
    records = np.arange(count) if records is None else records
    return mask(batch, masking, Vocabulary(), max_predictions=predictions, seed=seed, epochs=epochs, records=records)


@settings(max_examples=120, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(KINDS),
    st.floats(0.01, 0.99),
    st.integers(1, 40),
    st.integers(3, 70),
    st.integers(1, 9),
)
def test_labels_restore_the_text_and_specials_stay(seed, kind, share, predictions, length, count):
    batch, masking = rows(seed, count, length), Masking(kind=kind, share=share)
    out = apply(batch, masking, predictions, seed)
    ids, positions, labels, weights = (
        out[name] for name in ("input_ids", "masked_positions", "masked_ids", "masked_weights")
    )
    used = weights == 1
    assert positions.shape == labels.shape == weights.shape == (count, predictions)
    assert (positions.dtype, labels.dtype, weights.dtype, ids.dtype) == (np.int32, np.int32, np.float32, np.int32)
    assert not positions[~used].any() and not labels[~used].any() and set(np.unique(weights)) <= {0.0, 1.0}
    restored = ids.copy()
    for row in range(count):
        mine = positions[row, used[row]]
        assert np.all(np.diff(mine) > 0) and used[row, : len(mine)].all()
        assert np.isin(batch["input_ids"][row, mine], [0, 2, 3]).sum() == 0
        restored[row, mine] = labels[row, used[row]]
    np.testing.assert_array_equal(restored, batch["input_ids"])
    lengths = batch["attention_mask"].sum(1).tolist()
    wanted = [min(predictions, max(1, round(masking.share * n))) for n in lengths]
    limit = np.minimum(wanted, (batch["input_ids"] > 3).sum(1))
    number = used.sum(1)
    assert np.all(number == limit) if kind == "token" else np.all(number <= limit)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_masked_the_same_in_any_batch(kind):
    batch, masking = rows(1, 40, 64), Masking(kind=kind)
    whole = apply(batch, masking)
    order = np.random.default_rng(0).permutation(40)[:11]
    part = apply({name: array[order] for name, array in batch.items()}, masking, records=order)
    for name in part:
        np.testing.assert_array_equal(part[name], whole[name][order])
    before = batch["input_ids"].copy()
    apply(batch, masking)
    np.testing.assert_array_equal(batch["input_ids"], before)  # the input is not written to


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [{"seed": 8}, {"epochs": np.ones(40, np.int64)}, {"records": np.arange(40) + 1}])
def test_masks_depend_on_seed_epoch_and_record(kind, change):
    batch, masking = rows(1, 40, 64), Masking(kind=kind)
    one, other = apply(batch, masking), apply(batch, masking, **change)
    used = one["masked_weights"] == 1
    assert (one["masked_positions"] != other["masked_positions"])[used].mean() > 0.6


def units(ids, candidates):
    """(first, end) of every word: maximal runs of a start and its continuations."""
    found = []
    for position in range(len(ids)):
        if candidates[position]:
            continues = Vocabulary.continuation[ids[position]] and Vocabulary.continuable[ids[position - 1]]
            if found and found[-1][1] == position and continues:
                found[-1][1] = position + 1
            else:
                found.append([position, position + 1])
    return found


def one_row(ids, length, masking, predictions, seed, record):
    """The choice of whole-word units for one row, word by word; draws as in the module, everything else its own."""
    candidates = (np.arange(len(ids)) < length) & (ids > 3)
    words = units(ids, candidates)
    keys = fold_arrays(np.uint64(fold(seed, 0, record)) ^ np.arange(len(ids), dtype=np.uint64))
    order, draws = fold_arrays(0, keys), uniform(fold_arrays(1, keys))
    room = min(predictions, max(1, round(masking.share * length)), int(candidates.sum()))
    taken, owners = [], {}
    for first in sorted(range(len(words)), key=lambda w: order[words[w][0]]):
        begin = words[first][0]
        count, total = 0, np.cumsum(masking.span_probabilities)
        while count < len(total) - 1 and draws[begin] >= total[count]:
            count += 1
        unit = []
        for word in words[first : first + count + 1]:
            adjacent = not unit or unit[-1] + 1 == word[0]
            if not adjacent or len(unit) + word[1] - word[0] > room - len(taken):
                break
            unit += range(*word)
        if unit and not set(unit) & set(taken):
            taken += unit
            owners |= dict.fromkeys(unit, begin)
    return sorted(taken), owners


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(WORD_KINDS), st.floats(0.05, 0.9), st.integers(1, 30))
def test_units_equal_the_transcription(seed, kind, share, predictions):
    batch, masking = rows(seed, 6, 50), Masking(kind=kind, share=share)
    out = apply(batch, masking, predictions, seed)
    for row in range(6):
        length = int(batch["attention_mask"][row].sum())
        expected, _ = one_row(batch["input_ids"][row], length, masking, predictions, seed, row)
        assert out["masked_positions"][row, out["masked_weights"][row] == 1].tolist() == expected


def long_rows(count=2000, length=130):
    rng = np.random.default_rng(5)
    ids = rng.integers(5, 120, (count, length)).astype(np.int32)
    ids[:, 0], ids[:, -1] = 2, 3
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def near(share, expected, count, sigmas=5.0):
    return abs(share - expected) < sigmas * np.sqrt(expected * (1 - expected) / count)


@pytest.mark.parametrize("kind", KINDS)
def test_replacements_have_the_shares_of_the_paper(kind):
    batch = long_rows()
    out = apply(batch, Masking(kind=kind))
    now = np.take_along_axis(out["input_ids"], out["masked_positions"].astype(np.int64), 1)
    used = out["masked_weights"] == 1
    masks, kept = (now == 4)[used], (now == out["masked_ids"])[used]
    # Tokens of a span share their fate, so that fewer draws are independent.
    count = used.sum() / (10 if kind == "span" else 1)
    assert near(masks.mean(), 0.8 + 0.1 / V, count) and near(kept.mean(), 0.1 + 0.1 / V, count)
    random = now[used][~masks & ~kept]
    counts = np.bincount(random, minlength=V)
    assert counts[4] == 0 and (np.delete(counts, 4) > 0).all(), "random tokens come from the whole vocabulary"
    assert counts.max() < 3 * counts.mean()


def test_other_shares_are_obeyed():
    batch = long_rows(500)
    out = apply(batch, Masking(mask_share=0.0, random_share=1.0, share=0.3), predictions=60)
    assert out["masked_weights"].sum(1).tolist() == [39.0] * 500
    assert np.mean(out["input_ids"] == 4) < 0.01
    out = apply(batch, Masking(mask_share=0.0, random_share=0.0))
    np.testing.assert_array_equal(out["input_ids"], batch["input_ids"])


def test_every_position_is_as_likely():
    batch = long_rows(4000)
    out = apply(batch, Masking())
    counts = np.bincount(out["masked_positions"].ravel(), minlength=130)[1:129]
    expected = 4000 * 20 / 128
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected))


def test_unit_lengths_have_the_published_distributions():
    np.testing.assert_allclose(Masking(kind="ngram").span_probabilities, np.array([6, 3, 2]) / 11)
    spans = Masking(kind="span").span_probabilities
    assert len(spans) == 10 and np.allclose(spans[1:] / spans[:-1], 0.8)
    assert spans @ np.arange(1, 11) == pytest.approx(3.8, abs=0.01)  # SpanBERT, section 3.1
    assert len(Masking(kind="span", max_span=4).span_probabilities) == 4
    assert len(Masking(kind="ngram", max_span=5).span_probabilities) == 5


def test_a_span_is_replaced_as_a_whole():
    batch, masking = long_rows(200), Masking(kind="span")
    out = apply(batch, masking)
    mixed = 0
    for row in range(200):
        _, owners = one_row(batch["input_ids"][row], 130, masking, 20, 7, row)
        fates = {}
        for position, owner in owners.items():
            fates.setdefault(owner, set()).add(out["input_ids"][row, position] == 4)
        mixed += sum(len(fate) > 1 for fate in fates.values())
    assert mixed < 20  # only where a random token happens to be [MASK]


def test_rows_without_candidates_are_left_alone():
    for kind in KINDS:
        empty = {"input_ids": np.array([[2, 0, 0], [2, 3, 0]], np.int32)}
        out = apply({**empty, "attention_mask": np.array([[1, 0, 0], [1, 1, 0]], np.int32)}, Masking(kind=kind), 2)
        assert not out["masked_weights"].any()
        np.testing.assert_array_equal(out["input_ids"], empty["input_ids"])
