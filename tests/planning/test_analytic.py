"""The estimate of a step without a compiler, and the step itself lowered for devices that are not there."""

import dataclasses
import math

import jax
import numpy as np
import pytest
import tiny
from messages import mentioning

from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.planning import chips, step, tiles
from bertzoo.planning.analytic import Estimate
from bertzoo.runs.pretrain_config import Pretrain
from bertzoo.train import sharding


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    file = tiny.write_config(tmp_path_factory.mktemp("plan"), "text.txt")
    return lambda **options: config.load(Pretrain, [file], [(k.replace("__", "."), v) for k, v in options.items()])


def estimate(recipe: Pretrain, slice_: str = "v5e:2x2") -> Estimate:
    topology = chips.parse(slice_)
    return Estimate(recipe, 0, step.imagined(recipe, topology), topology.chip)


@pytest.fixture(scope="module")
def usual(load) -> Estimate:
    return estimate(load())


def test_the_kinds_sum_to_the_total_and_the_state_is_exact(load, usual):
    recipe, found = load(), usual
    memory = found.memory()
    assert memory.total == sum(dataclasses.asdict(memory).values())
    count = sum(leaf.size for leaf in jax.tree.leaves(step.parameters(recipe)))
    assert found.parameters == 4 * count
    assert found.optimizer == pytest.approx(8 * count, abs=16)  # two moments, and what counts the steps
    leaves = [4 * tiles.stored(leaf.shape) for leaf in jax.tree.leaves(step.parameters(recipe))]
    assert memory.parameters == sum(leaves) and memory.optimizer == pytest.approx(2 * sum(leaves), abs=16)
    assert memory.batch == 4 * (4 * (3 * 32 + 3 * 5) + 2 * 4)  # 4 rows of 32 tokens, 5 predictions, 2 numbers a row
    assert found.checkpoint == pytest.approx(12 * count, abs=64)


def test_a_table_whose_rows_are_not_whole_tiles_is_turned_to_be_updated(load, usual):
    rows = 4 * 256 * 128  # of 16 columns each, padded
    assert usual.memory().temporaries == 3 * rows
    assert estimate(load(model__hidden_size="128")).memory().temporaries < 3 * rows


def test_what_a_chips_compiler_keeps_longer(load, usual):
    """Attention's shares on most chips, and on one all gradients while activations still are."""
    rows = 1 << 16  # so that nothing is small beside what lives on the chip
    v5e, v4, tpu7x = (estimate(load(), slice_).memory(rows) for slice_ in ("v5e:2x2", "v4:2x2x1", "tpu7x:1x1x1"))
    recipe = load()
    shares = recipe.model.heads * 4 * recipe.stages[0].max_length ** 2 * rows
    assert v4.activations - v5e.activations >= 0.5 * shares
    assert tpu7x.gradients >= usual.parameters > v4.gradients
    assert tpu7x.activations == pytest.approx(v4.activations, rel=0.01)


def test_sharded_parameters_take_their_part(load, usual):
    whole, parts = usual.memory(), estimate(load(mesh__fsdp="4")).memory()
    assert parts.parameters < whole.parameters and parts.gradients < whole.gradients
    assert parts.optimizer == pytest.approx(2 * parts.parameters, abs=16)
    assert parts.batch == whole.batch


def test_microbatches_hold_fewer_rows_beside_the_sum_of_their_gradients(load, usual):
    parts = estimate(load(stages__0__accumulate="2"))
    assert (usual.rows, parts.rows) == (4, 2)
    many = 1 << 16  # so that the worst moment is in the backward pass
    assert parts.memory(many).gradients == usual.memory(many).gradients + usual.parameters
    assert parts.memory(many).batch == 2 * usual.memory(many).batch


def test_the_most_rows_are_the_most_that_fit(usual):
    most, capacity = usual.largest_rows(), chips.CHIPS["v5e"].capacity
    assert usual.memory(most).total <= capacity < usual.memory(most + 1).total


def test_the_gradients_are_sent_to_all_who_share_the_rows(usual):
    # The word table's gradient has two parts, of its rows and of its columns, which are summed apart.
    tables = 4 * 256 * 16
    assert usual.traffic().sent == pytest.approx(1.5 * (usual.parameters + tables), rel=0.01)


def test_a_slice_refuses_what_a_run_on_it_would(load):
    with pytest.raises(ConfigError, match=mentioning("batch_size=16", "32 devices")):
        step.imagined(load(), chips.parse("v3:4x4"))
    with pytest.raises(ConfigError, match=mentioning("data=3", "4 devices")):
        step.imagined(load(mesh__data="3"), chips.parse("v5e:2x2"))


def test_the_step_is_lowered_with_its_state_batch_and_mesh(load):
    recipe = load(mesh__fsdp="2", compute__dtype="bfloat16")
    mesh = step.checked(recipe, sharding.make_mesh(recipe.mesh))
    lowered = step.lower(recipe, 1, mesh)
    sizes = [math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(lowered.args_info)]
    state = step.abstract(recipe, 1, mesh)
    held = sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(state))
    batch = 4 * (8 * (3 * 48 + 3 * 7) + 2 * 8)
    assert sum(sizes) == held + batch
    donated = [leaf.donated for leaf in jax.tree.leaves(lowered.args_info)]
    assert sum(donated) == len(jax.tree.leaves(state))
    assert '"fsdp"=2' in lowered.as_text()


def test_tensor_splits_what_lies_between_the_maps_of_a_layer(load):
    whole, parts = (estimate(load(mesh__data="1", mesh__tensor=tensor), "v5e:1x1" if tensor == "1" else "v5e:2x2")
                    for tensor in ("1", "4"))  # fmt: skip
    many = 1 << 14
    before, after = whole.memory(many), parts.memory(many)
    assert before.activations / 4 < after.activations < 0.8 * before.activations
    assert parts.traffic().sent > 0 == whole.traffic().sent


def test_fsdp_sends_parameters_to_and_fro_and_gradients_to_their_places(load):
    """Without a pooler nothing is turned: a half as much again for what is split as for a sum over all."""
    alone = {"objective__sentence": "none", "compute__dtype": "float32"}
    usual, parts = estimate(load(**alone)), estimate(load(mesh__fsdp="4", **alone))
    split = 4 * (usual.parameters - parts.parameters) / 3  # bytes of what is split, whole
    assert parts.traffic().sent - usual.traffic().sent == pytest.approx(0.75 * split, rel=0.01)
    pooled = {"objective__sentence": "sop", "compute__dtype": "float32"}
    rows = 4 * 4 * 32 * 16  # of one array of all tokens on a device
    assert estimate(load(mesh__fsdp="4", **pooled)).traffic().sent > parts.traffic().sent + 4 * rows
