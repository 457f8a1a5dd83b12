"""Examples become rows and batches: cuts, padding, every row once per epoch, and the original order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import tokenizer
from messages import mentioning

from bertzoo.data.tokenizers.byte_bpe import ByteBpe
from bertzoo.tasks.rows import Rows, Slot, bucket_lengths, encode, truncated
from bertzoo.tasks.task import Example

TOKENIZER = tokenizer()
PAD, UNK, CLS, SEP = 0, 1, 2, 3


def ids(text):
    return TOKENIZER.encode_batch([text])[0].tolist()


def example(a, b=None, label=0, key="0"):
    return Example(key, a, b, label)


def one(rows, length=None):
    """The arrays of a single row, alone in its batch."""
    (slot,) = rows.plan(1, [length or rows.max_length])
    return {name: array[0].tolist() for name, array in rows.batch(slot, 1).items()}


def test_one_text_and_two():
    row = one(encode([example("the cat", label=1)], TOKENIZER, 8, "classification"))
    the, cat = ids("the cat")
    assert row == {
        "input_ids": [CLS, the, cat, SEP, PAD, PAD, PAD, PAD],
        "token_type_ids": [0] * 8,
        "attention_mask": [1, 1, 1, 1, 0, 0, 0, 0],
        "row_weight": 1.0,
        "label": 1,
    }
    rows = encode([example("the", "cat the", 2.5)], TOKENIZER, 8, "regression")
    row = one(rows)
    assert row["input_ids"] == [CLS, the, SEP, cat, the, SEP, PAD, PAD] and row["label"] == 2.5
    assert row["token_type_ids"] == [0, 0, 0, 1, 1, 1, 0, 0] and not rows.cut.any()
    batch = rows.batch(rows.plan(1, [8])[0], 1)
    dtypes = dict.fromkeys(row, "int32") | dict.fromkeys(("row_weight", "label"), "float32")
    assert {name: str(array.dtype) for name, array in batch.items()} == dtypes


def test_empty_texts_as_in_berts_code():
    assert one(encode([example("")], TOKENIZER, 6, "classification"))["input_ids"][:3] == [CLS, SEP, PAD]
    assert one(encode([example("the", " ")], TOKENIZER, 6, "classification"))["input_ids"][2:4] == [SEP, PAD]
    row = one(encode([example("", "the")], TOKENIZER, 6, "classification"))
    assert row["input_ids"][:4] == [CLS, SEP, *ids("the"), SEP] and row["token_type_ids"][:4] == [0, 0, 1, 1]


def test_rows_to_predict_have_no_labels():
    row = one(encode([example("the", label=None)], TOKENIZER, 6, "classification"))
    assert "label" not in row and "row_weight" in row


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 30))
def test_cutting_is_berts_loop(a, b, room):
    kept = [a, b]
    while sum(kept) > room:
        kept[0 if kept[0] > kept[1] else 1] -= 1
    assert [int(n) for n in truncated(np.array(a), np.array(b), np.array(room))] == kept


TEXT = st.text("ab ", max_size=40)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(TEXT, st.none() | TEXT), min_size=1, max_size=6), st.integers(5, 20))
def test_no_separator_is_ever_cut(texts, max_length):
    rows = encode([example(a, b) for a, b in texts], TOKENIZER, max_length, "classification")
    (whole,) = rows.plan(len(texts), [max_length], seed=None)
    batch = rows.batch(whole, len(texts))
    for place, row in enumerate(whole.rows):
        (a, b), found = texts[row], batch["input_ids"][place]
        length = int(batch["attention_mask"][place].sum())
        separators = np.flatnonzero(found == SEP).tolist()
        assert found[0] == CLS and length <= max_length and (found[length:] == PAD).all()
        assert len(separators) == (2 if b and b.strip() else 1) and separators[-1] == length - 1
        parts = np.split(found[1:length], [separators[0], length - 1])
        for part, text in zip(parts, (a, b or ""), strict=False):
            kept = [token for token in part.tolist() if token != SEP]
            assert kept == ids(text)[: len(kept)]
        kept = length - 1 - len(separators)
        assert kept == min(len(ids(a)) + len(ids(b or "")), max_length - 1 - len(separators))
        assert rows.cut[row] == (kept < len(ids(a)) + len(ids(b or "")))
        assert batch["token_type_ids"][place].sum() == (length - separators[0] - 1)


LENGTHS = st.lists(st.integers(2, 40), min_size=1, max_size=60)


def of_lengths(lengths):
    """Rows of these many tokens, each naming itself by its label."""
    count = len(lengths)
    total = int(np.sum(lengths))
    return Rows(
        keys=tuple(map(str, range(count))),
        ids=np.arange(10, 10 + total, dtype=np.int32),
        lengths=np.array(lengths),
        middle=np.array(lengths),
        cut=np.zeros(count, bool),
        label=np.arange(count, dtype=np.int32),
        specials=TOKENIZER.specials,
        max_length=40,
    )


@settings(deadline=None, max_examples=60)
@given(LENGTHS, st.integers(1, 7), st.integers(1, 5), st.none() | st.integers(0, 3), st.integers(0, 3))
def test_an_epoch_has_every_row_once_whatever_the_lengths(lengths, batch_size, buckets, seed, epoch):
    rows = of_lengths(lengths)
    sizes = bucket_lengths([rows], buckets, 40)
    assert len(set(sizes)) == len(sizes) <= buckets
    slots = rows.plan(batch_size, sizes, seed, epoch)
    assert len(slots) == -(-len(lengths) // batch_size)
    batches = [rows.batch(slot, batch_size) for slot in slots]
    found = []
    for slot, batch in zip(slots, batches, strict=True):
        assert batch["input_ids"].shape == (batch_size, slot.length) and slot.length in sizes
        real = batch["row_weight"] > 0
        assert real.sum() == len(slot.rows) and set(batch["row_weight"].tolist()) <= {0.0, 1.0}
        assert batch["label"][real].tolist() == slot.rows.tolist()
        for row, tokens, mask in zip(slot.rows, batch["input_ids"], batch["attention_mask"], strict=False):
            start = 10 + sum(lengths[:row])
            assert tokens[mask > 0].tolist() == list(range(start, start + lengths[row]))
            assert mask[: lengths[row]].all()
        # What only pads attends to [CLS], so that no softmax is empty.
        assert (batch["input_ids"][~real, 0] == CLS).all() and (batch["attention_mask"][~real].sum(1) == 1).all()
        found += slot.rows.tolist()
    assert sorted(found) == list(range(len(lengths)))
    restored = rows.restore(slots, [np.stack([batch["label"], batch["label"] + 1], 1) for batch in batches])
    assert restored.tolist() == [[row, row + 1] for row in range(len(lengths))]


@settings(deadline=None, max_examples=60)
@given(LENGTHS, st.integers(1, 5))
def test_lengths_minimise_the_padding(lengths, buckets):
    import itertools

    rows = of_lengths(lengths)
    sizes = bucket_lengths([rows, rows], buckets, 38 if max(lengths) <= 38 else 40)
    if buckets == 1:
        assert sizes in ((38,), (40,))
        return

    def padded(sizes):
        return sum(min(size for size in sizes if size >= length) for length in lengths)

    allowed = {min(-(-n // 8) * 8, 38 if max(lengths) <= 38 else 40) for n in lengths}
    choices = (c for n in range(1, buckets + 1) for c in itertools.combinations(sorted(allowed), n))
    assert padded(sizes) == min(padded(c) for c in choices if max(c) >= max(lengths))


def test_an_epoch_depends_on_seed_and_number_alone():
    rows = of_lengths([2 + n % 30 for n in range(200)])

    def epoch(seed, number, rows=rows):
        return [row for slot in rows.plan(8, (16, 40), seed, number) for row in slot.rows.tolist()]

    assert epoch(0, 0) == epoch(0, 0, of_lengths([2 + n % 30 for n in range(200)]))
    assert len({tuple(epoch(seed, number)) for seed in range(3) for number in range(3)}) == 9
    # Other rows are together in every epoch and under every seed, not the same batches in another order.
    shuffles = [
        frozenset(frozenset(slot.rows.tolist()) for slot in rows.plan(8, (16, 40), seed, number))
        for seed in range(3)
        for number in range(3)
    ]
    assert len(set(shuffles)) == 9
    # Batches of either length are mixed: neither half of an epoch has one alone.
    lengths = [slot.length for slot in rows.plan(8, (16, 40), 0, 0)]
    assert {16, 40} == set(lengths[:12]) == set(lengths[12:])
    # Without a seed rows are in the order of their lengths, and each batch is as short as it can be.
    ordered = [slot.length for slot in rows.plan(8, (16, 24, 40))]
    assert ordered == sorted(ordered) and ordered[0] == 16


def test_restoring_needs_every_output():
    rows = of_lengths([4, 9, 12])
    slots = rows.plan(2, (16,))
    with pytest.raises(ValueError, match=mentioning(2, 3)):
        rows.restore(slots[:1], [np.zeros(2)])


def tagged(*sentences):
    made = [(tuple(words.split()), tuple(tags)) for words, tags in sentences]
    return [Example(str(i), " ".join(words), None, tags, words) for i, (words, tags) in enumerate(made)]


def test_words_are_labelled_at_their_first_token():
    examples = tagged(("the abc \u200b", (2, 1, 3)), ("cat", (1,)))
    rows = encode(examples, TOKENIZER, 8, "tokens")
    (slot,) = rows.plan(2, (8,), seed=None)
    batch = rows.batch(slot, 3)
    assert slot.rows.tolist() == [1, 0]
    the, cat = ids("the cat")
    # An empty word becomes [UNK], so that it has a place.
    assert batch["input_ids"][1].tolist() == [CLS, the, *ids("abc"), UNK, SEP, PAD]
    assert batch["input_ids"][0, :3].tolist() == [CLS, cat, SEP]
    assert batch["label"].tolist() == [[0, 1, 0, 0, 0, 0, 0, 0], [0, 2, 1, 0, 0, 3, 0, 0], [0] * 8]
    assert batch["label_weight"].tolist() == [[0, 1, 0, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 1, 0, 0], [0] * 8]
    assert batch["row_weight"].tolist() == [1, 1, 0] and batch["label_weight"].dtype == np.float32


def test_byte_pairs_of_words_are_those_of_running_text():
    text = "the cat sat on the mat"
    pairs = ByteBpe(vocab_size=300).train(lambda: iter([text] * 5))
    rows = encode(tagged((text, range(6))), pairs, 40, "tokens")
    batch = rows.batch(Slot(np.arange(1), 40), 1)
    assert batch["input_ids"][0, 1 : rows.lengths[0] - 1].tolist() == pairs.encode_batch([text])[0].tolist()


def test_tags_return_in_order_and_cut_words_are_marked():
    examples = tagged(("the abc cat sat", (0, 1, 2, 3)), ("cat", (1,)), ("a b c d e f g h", range(8)))
    rows = encode(examples, TOKENIZER, 7, "tokens")
    assert rows.cut.tolist() == [True, False, True] and rows.lengths.tolist() == [7, 3, 7]
    slots = rows.plan(2, (3, 7))
    assert [slot.length for slot in slots] == [7, 7] or [slot.length for slot in slots] == [3, 7]
    batches = [rows.batch(slot, 2) for slot in slots]
    said = rows.restore_words(slots, [np.where(b["label_weight"] > 0, b["label"], 99) for b in batches])
    assert [words.tolist() for words in said] == [[0, 1, 2, -1], [1], [0, 1, 2, 3, 4, -1, -1, -1]]
