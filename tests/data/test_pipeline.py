"""Batches are a pure function of (seed, step) and hold the corpus's text."""

import threading
from dataclasses import replace
from pathlib import Path

import chex
import numpy as np
import pytest
from made_up import small
from messages import mentioning

from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data.corpus.reader import Split
from bertzoo.data.mask import Masking
from bertzoo.data.pack import Sentence, SentencePacking, plan_rows
from bertzoo.data.pipeline import Batches, open_corpus, prefetch

LENGTH, PREDICTIONS = 64, 10


@pytest.fixture(scope="module")
def make(corpus, tmp_path_factory):
    cache = tmp_path_factory.mktemp("plans")

    def _make(sentence: Sentence = "sop", split: Split = "train", seed=3, **changes) -> Batches:
        rows = plan_rows(
            corpus, split, SentencePacking(), sentence=sentence, max_length=LENGTH, seed=0, directory=cache
        )
        options = {"max_predictions": PREDICTIONS, "seed": seed, **changes}
        return Batches(corpus, split, rows, Masking(), **options)

    return _make


def records_of_step(batches, step, size):
    """The epoch and the record of each row of a batch."""
    epochs, numbers = batches._shuffled(step, size, None)
    return list(zip(epochs.tolist(), numbers.tolist(), strict=True))


def records(batches, steps, size):
    return [record for step in range(steps) for record in records_of_step(batches, step, size)]


@pytest.mark.parametrize("sentence", ["none", "nsp", "sop"])
def test_rows_are_laid_out_as_in_the_paper(make, corpus, sentence):
    batches = make(sentence)
    flat = np.concatenate(list(corpus.stream("train"))).astype(np.int64)
    specials, size = corpus.tokenizer.specials, 32
    for step in range(4):
        batch = batches.batch(step, size)
        for row, (_, record) in enumerate(records_of_step(batches, step, size)):
            wanted = batches._plan.rows[record]
            a = flat[wanted["a_start"] :][: wanted["a_length"]].tolist()
            b = flat[wanted["b_start"] :][: wanted["b_length"]].tolist()
            text = [specials.cls, *a, specials.sep, *([*b, specials.sep] if sentence != "none" else [])]
            restored = batch["input_ids"][row].copy()
            used = batch["masked_weights"][row] == 1
            restored[batch["masked_positions"][row, used]] = batch["masked_ids"][row, used]
            pad = LENGTH - len(text)
            assert restored.tolist() == text + [specials.pad] * pad
            assert batch["attention_mask"][row].tolist() == [1] * len(text) + [0] * pad
            types = [0] * (len(a) + 2) + [1] * (len(text) - len(a) - 2)
            assert batch["token_type_ids"][row].tolist() == types + [0] * pad
            if sentence != "none":
                assert batch["sentence_label"][row] == wanted["label"]


def test_every_epoch_has_its_own_permutation(make):
    batches, size = make(), 7
    steps = -(-2 * batches.rows // size)
    seen = records(batches, steps, size)
    orders = [[record for epoch, record in seen if epoch == number] for number in (0, 1)]
    for order in orders:
        assert sorted(order) == list(range(batches.rows))
        assert np.mean(np.diff(order) == 1) < 0.05
    assert orders[0] != orders[1]


def test_a_batch_is_a_pure_function_of_seed_and_step(make):
    one, other = make(), make()
    for step in (9, 0, 3):
        other.batch(step + 1, 8)
        chex.assert_trees_all_equal(one.batch(step, 8), other.batch(step, 8))
    assert not np.array_equal(make(seed=4).batch(0, 8)["input_ids"], one.batch(0, 8)["input_ids"])
    assert not np.array_equal(one.batch(1, 8)["input_ids"], one.batch(0, 8)["input_ids"])
    assert records(make(seed=4), 3, 8) != records(one, 3, 8) == records(one, 8, 3)


@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_the_rows_of_hosts_make_up_the_batch(make, hosts):
    batches, size = make(), 16
    share = size // hosts
    for step in (0, batches.rows // size):  # the second one wraps around into the next epoch
        whole = batches.batch(step, size)
        parts = [batches.batch(step, size, slice(h * share, (h + 1) * share)) for h in range(hosts)]
        for name in whole:
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole[name])


def test_masks_change_from_epoch_to_epoch(make):
    batches = make()
    places = {}
    for step in range(2):
        batch = batches.batch(step, batches.rows)
        for row, (_, record) in enumerate(records_of_step(batches, step, batches.rows)):
            places.setdefault(record, []).append(batch["masked_positions"][row].tolist())
    assert np.mean([one == other for one, other in places.values()]) < 0.1


def test_sequential_batches_hold_every_row_once(make, corpus):
    batches = make(split="heldout")
    size = 16
    assert batches.rows % size
    together = [batches.sequential(step, size) for step in range(batches.steps(size))]
    whole = {name: np.concatenate([batch[name] for batch in together]) for name in together[0]}
    real = whole["row_weight"] == 1
    assert real.sum() == batches.rows and real[: batches.rows].all()
    all_at_once = batches.sequential(0, batches.rows)
    for name in whole:
        np.testing.assert_array_equal(whole[name][real], all_at_once[name])
        padding = whole[name][~real]
        if name in ("input_ids", "attention_mask"):
            first = corpus.tokenizer.specials.cls if name == "input_ids" else 1
            assert np.all(padding[:, 0] == first) and not padding[:, 1:].any()
        else:
            assert not padding.any()
    halves = [batches.sequential(batches.steps(size) - 1, size, slice(h * 8, h * 8 + 8)) for h in (0, 1)]
    for name in whole:
        np.testing.assert_array_equal(np.concatenate([half[name] for half in halves]), together[-1][name])
    with pytest.raises(IndexError):
        batches.sequential(batches.steps(size), size)
    larger = batches.rows + 5
    assert batches.steps(larger) == 1 and batches.sequential(0, larger)["row_weight"].sum() == batches.rows


def test_settings_without_a_batch_raise(make):
    batches = make()
    assert len(batches.batch(0, batches.rows)["input_ids"]) == batches.rows
    with pytest.raises(CorpusError, match=mentioning(f"{batches.rows:,}", 64)):
        batches.batch(0, batches.rows + 1)


def test_a_tokenised_corpus_is_a_source_when_the_settings_agree(corpus, tmp_path):
    data = small(corpus.directory)
    assert open_corpus(data, tmp_path / "unused").hash == corpus.hash
    assert not (tmp_path / "unused").exists()
    with pytest.raises(ConfigError, match=mentioning("tokenizer.lowercase", True, False)):
        open_corpus(replace(data, tokenizer=replace(data.tokenizer, lowercase=False)), tmp_path)
    raw = Path(corpus.manifest.settings["source"])
    assert open_corpus(small(raw), tmp_path / "new", workers=1).hash == corpus.hash


def test_a_corpus_with_a_given_vocabulary_records_its_path(corpus, tmp_path):
    raw, tokenizer = Path(corpus.manifest.settings["source"]), small(corpus.directory).tokenizer
    given = replace(tokenizer, path=str(corpus.directory / "tokenizer" / "vocab.txt"))
    made = open_corpus(replace(small(raw), tokenizer=given), tmp_path / "given", workers=1)
    kept = str(made.directory / "tokenizer" / "vocab.txt")
    data = small(made.directory)
    with pytest.raises(ConfigError, match=mentioning("data.tokenizer.path", kept)):
        open_corpus(data, tmp_path)
    assert open_corpus(replace(data, tokenizer=replace(tokenizer, path=kept)), tmp_path).hash == made.hash


def test_prefetch_keeps_order_and_runs_ahead():
    made = []

    def slow(step):
        made.append(step)
        return step * step

    stream = prefetch(slow, 3, 9, depth=2)
    assert next(stream) == 9
    assert list(stream) == [16, 25, 36, 49, 64] and made == list(range(3, 9))
    assert list(prefetch(slow, 5, 5)) == []


def test_prefetch_is_bounded_and_stops():
    made, threads = [], threading.active_count()
    enough = threading.Event()

    def count(step):
        made.append(step)
        if len(made) >= 4:
            enough.set()
        return step

    stream = prefetch(count, 0, 10**9, depth=3)
    assert next(stream) == 0
    assert enough.wait(10)
    stream.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert len(made) <= 6 and threading.active_count() == threads


def test_prefetch_raises_where_the_batch_is_consumed():
    def broken(step):
        if step == 2:
            raise CorpusError("shard 7 is damaged")
        return step

    stream = prefetch(broken, 0, 5)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(CorpusError, match="shard 7 is damaged"):
        next(stream)
