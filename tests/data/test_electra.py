"""ELECTRA's rows equal a transcription of its builder, drop only cut tokens, and have as often two segments."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import mentioning

from bertzoo.core.errors import ConfigError
from bertzoo.data.mask import Masking
from bertzoo.data.pack import ElectraPacking, RowPlan, electra_rows, plan_rows
from bertzoo.data.pipeline import Batches, assemble
from bertzoo.data.rng import SplitMix


def transcription(sentences: list[list[int]], max_length: int, single: float, short: float, goes_back: bool, random):
    """add_line and _create_example of ELECTRA's ExampleBuilder on one document: (A, B, B before the cut) of each row.

    `goes_back`: a sentence may join A after B has begun, as in ELECTRA's code. A row's target is drawn when the
    row begins, which is when the row before it ends.
    """
    rows, gathered, length = [], [], 0

    def draw_target():
        return random.integer(5, max_length) if random.random() < short else max_length

    def example():
        half = 100_000 if random.random() < single else (target - 3) // 2
        a, b = [], []
        for sentence in gathered:
            open_ = goes_back or not b
            if (
                len(a) == 0
                or (open_ and len(a) + len(sentence) < half)
                or (len(b) == 0 and len(a) < half and random.random() < 0.5)
            ):
                a = a + sentence
            else:
                b = b + sentence
        whole = b
        a = a[: max_length - 2]
        return a, b[: max(0, max_length - len(a) - 3)], whole

    target = draw_target()
    for number, sentence in enumerate(sentences):
        gathered.append(sentence)
        length += len(sentence)
        if length >= target or number == len(sentences) - 1:
            rows.append(example())
            gathered, length = [], 0
            if number < len(sentences) - 1:
                target = draw_target()
    return rows


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=30),
    st.integers(5, 80),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.sampled_from([0.0, 0.05, 1.0]),
    st.data(),
)
def test_rows_equal_the_transcription(lengths, max_length, single, short, data):
    seed = data.draw(st.integers(0, 2**32))
    bounds = (7 + np.concatenate([[0], np.cumsum(lengths)])).tolist()
    sentences = [list(range(a, b)) for a, b in pairwise(bounds)]
    rows = list(electra_rows(bounds, max_length, 3, single, short, SplitMix(seed)))
    expected = transcription(sentences, max_length, single, short, False, SplitMix(seed))
    assert len(rows) == len(expected)
    starts = [*(row[0] for row in rows), bounds[-1]]
    for (a_start, b_start, a_length, b_length, document, label, fallback), (a, b, _), following in zip(
        rows, expected, starts[1:], strict=True
    ):
        assert list(range(a_start, a_start + a_length)) == a and list(range(b_start, b_start + b_length)) == b
        assert (document, label, fallback) == (3, 0, 0) and 0 < a_length <= max_length - 2
        assert not b or len(a) + len(b) <= max_length - 3
        dropped = following - a_start - a_length - b_length
        assert dropped >= 0 and (dropped == 0 or len(a) + len(b) >= max_length - 3)  # only a full row drops tokens
    assert starts[0] == bounds[0]
    # The reference's going back moves sentences between the segments of a row, and decides nothing else.
    reference = transcription(sentences, max_length, single, short, True, SplitMix(seed))
    assert [bool(b) for _, _, b in reference] == [bool(b) for _, _, b in expected]


def made(corpus, tmp_path, max_length=64, seed=1, **packing: Any) -> RowPlan:
    settings: dict[str, Any] = {"max_length": max_length, "seed": seed, "directory": tmp_path}
    return plan_rows(corpus, "train", ElectraPacking(**packing), sentence="none", **settings)


def test_every_share_sets_the_share_of_its_rows(corpus, tmp_path):
    usual, single, short = (
        made(corpus, tmp_path, single_share=a, short_share=b).rows for a, b in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    )
    assert not single["b_length"].any() and usual["b_length"].any()
    assert len(short) > 1.3 * len(usual)
    some = made(corpus, tmp_path, single_share=0.3, short_share=0.0, passes=3).rows
    pairs = [(rows["b_length"] > 0).mean() for rows in (some, usual)]
    assert pairs[0] == pytest.approx(0.7 * pairs[1], abs=0.03)


def test_rows_depend_on_seed_pass_and_document_alone(corpus, tmp_path):
    once, again, twice = made(corpus, tmp_path), made(corpus, tmp_path / "elsewhere"), made(corpus, tmp_path, passes=2)
    np.testing.assert_array_equal(once.rows, again.rows)
    np.testing.assert_array_equal(twice.rows[: len(once.rows)], once.rows)
    assert not np.array_equal(twice.rows[len(once.rows) :], once.rows)
    assert not np.array_equal(made(corpus, tmp_path, seed=2).rows, once.rows)
    documents = corpus.split("train")
    for document in (0, 7, len(documents.documents) - 2):
        bounds = documents.offsets[documents.documents[document] : documents.documents[document + 1] + 1]
        own = once.rows[once.rows["document"] == document]
        assert own["a_start"][0] == bounds[0] and (own["a_start"] + own["a_length"] <= bounds[-1]).all()
    total = once.rows["a_length"].sum() + once.rows["b_length"].sum()
    assert total <= corpus.manifest.splits["train"].tokens


def test_batches_have_types_and_no_sentence_label(corpus, tmp_path):
    rows = made(corpus, tmp_path)
    masking = Masking(mask_share=0.85, random_share=0.0)
    batches = Batches(corpus, "train", rows, masking, max_predictions=9, seed=0)
    batch = batches.batch(0, 256)
    assert "sentence_label" not in batch
    assert 0.5 < batch["token_type_ids"].max(1).mean() < 1
    plain = assemble(corpus, "train", rows.rows, 64)
    assert (plain["attention_mask"].sum(1) > 62).mean() > 0.5
    # N = int((0.15 + 0.005) · 64) = 9 and round(0.15 · tokens) of them, 85 % [MASK], the rest unchanged.
    tokens = batch["attention_mask"].sum(1)
    np.testing.assert_array_equal(batch["masked_weights"].sum(1), np.minimum(9, np.maximum(1, np.rint(0.15 * tokens))))
    shown = np.take_along_axis(batch["input_ids"], batch["masked_positions"], 1)
    used, mask = batch["masked_weights"] > 0, corpus.tokenizer.specials.mask
    assert ((shown == mask) | (shown == batch["masked_ids"]))[used].all()
    assert (shown == mask)[used].mean() == pytest.approx(0.85, abs=0.03)


def test_impossible_packings_raise(corpus, tmp_path):
    with pytest.raises(ConfigError, match=mentioning("max_length", 4)):
        made(corpus, tmp_path, max_length=4)
    assert len(made(corpus, tmp_path, max_length=5).rows)
    with pytest.raises(ConfigError, match=mentioning("sentence", "sop")):
        plan_rows(corpus, "train", ElectraPacking(), sentence="sop", max_length=64, seed=1, directory=tmp_path)
    with pytest.raises(ConfigError, match=mentioning("single_share", 1.5)):
        ElectraPacking(single_share=1.5)
    with pytest.raises(ConfigError, match=mentioning("passes", "0")):
        ElectraPacking(passes=0)
