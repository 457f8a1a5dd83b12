"""A run's batches follow its config: packing, masking, predictions, held-out rows, warnings."""

import re
from dataclasses import replace

import chex
import numpy as np
import pytest
import tiny

from bertzoo.core import config
from bertzoo.data.pipeline import open_corpus
from bertzoo.runs.configs import Pretrain
from bertzoo.runs.experiments import RunBatches, batch_shapes


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """A function (options) -> feed."""
    directory = tmp_path_factory.mktemp("feed")
    file = tiny.write_config(directory, tiny.write_text(directory / "text.txt"))
    corpus = open_corpus(config.load(Pretrain, [file]).data, directory / "corpus")

    def _make(**options: str) -> RunBatches:
        recipe = config.load(Pretrain, [file], [(name.replace("__", "."), value) for name, value in options.items()])
        return RunBatches(recipe, corpus, directory / "plans")

    return _make


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("seed", "1"),
        ("objective__sentence", "none"),
        ("objective__sentence", "nsp"),
        ("data__packing__short_share", "1.0"),
        ("data__masking__share", "0.4"),
        ("data__masking__mask_share", "0.5"),
        ("data__masking__random_share", "0.0"),
        ("data__masking__kind", "word"),
        ("stages__0__max_predictions", "2"),
        ("stages__0__max_length", "16"),
        ("stages__0__masking_share", "0.05"),
    ],
)
def test_every_option_reaches_the_batch(make, option, value):
    usual, changed = (next(make(**options).train(0, 0)) for options in ({}, {option: value}))
    assert usual.keys() != changed.keys() or any(
        usual[name].shape != changed[name].shape or (usual[name] != changed[name]).any() for name in usual
    )


@pytest.mark.parametrize(
    "options",
    [
        {"objective__sentence": "sop"},
        {"objective__sentence": "nsp"},
        {"objective__sentence": "none"},
        {"objective__sentence": "none", "data__packing__kind": "electra"},
        {"objective__kind": "replaced", "data__packing__kind": "electra", "data__masking__kind": "span"},
    ],
)
def test_batch_shapes_follow_from_the_recipe(make, options):
    feed = make(**options)
    for index, stage in enumerate(feed.recipe.stages):
        batch = next(feed.train(index, 0))
        made = {name: (array.shape, array.dtype) for name, array in batch.items()}
        described = batch_shapes(feed.recipe, index, stage.batch_size)
        assert {name: (shape.shape, shape.dtype) for name, shape in described.items()} == made


@pytest.mark.parametrize("objective", ["masked", "replaced"])
def test_the_masked_share_of_a_stage_falls_from_step_to_step(make, objective):
    options = {"objective__kind": objective}
    feed = make(stages__0__masking_share="[0.16, 0.06]", **options)
    batches, later = list(feed.train(0, 0)), list(feed.train(0, 48))
    for step, batch in enumerate(batches):
        share = 0.16 - 0.1 * step / 5
        expected = np.maximum(1, np.rint(share * batch["attention_mask"].sum(1)))
        assert (batch["masked_weights"].sum(1) == expected).all() and batch["masked_weights"].shape == (16, 5)
    for a, b in zip(batches[3:], later, strict=True):
        chex.assert_trees_all_equal(a, b)
    # The second stage and the held-out text have the share of data.masking.
    plain = make(**options)
    chex.assert_trees_all_equal(list(feed.train(1, 0)), list(plain.train(1, 0)))
    chex.assert_trees_all_equal(list(feed.heldout(0, 40, 1)), list(plain.heldout(0, 40, 1)))


@pytest.mark.parametrize("rows", [1, 7, 16, 20, 33, -1, 10_000])
def test_held_out_rows_are_never_counted_twice(make, rows):
    feed = make()
    there = feed.stage(0, "heldout").rows
    rows = rows if rows > 0 else there + rows
    batches = list(feed.heldout(0, rows, 4))
    seen = [ids.tobytes() for batch in batches for ids in batch["input_ids"][batch["row_weight"] == 1]]
    assert min(rows, there // 16 * 16) <= len(seen) <= there
    assert len(set(seen)) > 0.9 * len(seen)  # except rows with equal text
    assert all((a["input_ids"] == b["input_ids"]).all() for a, b in zip(batches, feed.heldout(0, rows, 4), strict=True))


def test_a_part_of_a_run_draws_as_the_stage_it_continues(make):
    whole = make()
    stages = whole.recipe.stages[1:]
    part = RunBatches(replace(whole.recipe, stages=stages), whole.corpus, whole._plans, first=1)
    chex.assert_trees_all_equal(next(part.train(0, 0)), next(whole.train(1, 0)))


def test_a_warning_counts_rows_with_a_random_second_segment(logged, make):
    feed = make()
    for _ in range(2):
        feed.plan("train", 32)
        feed.plan("heldout", 32)
    assert len(logged) == 1 and re.search(r"\d+% of the rows of 32 tokens", logged[0])
