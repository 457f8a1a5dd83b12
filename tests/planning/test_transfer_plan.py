"""The plan of a transfer: stages that differ in depth, a teacher, stages between the planned ones."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import linen as nn

from bertzoo.core import config
from bertzoo.planning import chips, estimate
from bertzoo.runs import experiments
from bertzoo.runs.configs import Transfer
from bertzoo.train import sharding

pytestmark = pytest.mark.slow

CUT = [(f"{table}.layers", "4") for table in ("model", "teacher")]
CUT += [("transfer.batch_size", "64"), ("distillation.0.batch_size", "64"), ("transfer.max_length", "64")]
CUT += [("distillation.0.max_length", "64"), ("teacher.vocab_size", "1000"), ("model.vocab_size", "1000")]
CUT += [("data.tokenizer.vocab_size", "1000"), ("compute.dtype", "float32"), ("model.feed_forwards", "1")]


@pytest.fixture(scope="module")
def recipe():
    return config.load(Transfer, ["mobilebert_transfer"], CUT)


@pytest.fixture(scope="module")
def plan(recipe):
    return estimate.make_plan(recipe, chips.parse_topology("v5e:2x2"))


def test_the_first_middle_and_last_layer_and_the_distillation_are_planned(recipe, plan):
    assert [stage.index for stage in plan.stages] == [0, 1, 3, 4] == estimate.planned_stages(recipe)
    assert [stage.name for stage in plan.stages][1::2] == ["transfer, layer 2 of 4", "distillation"]
    large = config.load(Transfer, ["mobilebert_transfer"])
    assert estimate.planned_stages(large) == [0, 11, 23, 24]


def test_a_stages_cost_grows_with_its_depth(plan):
    first, middle, last, _ = (stage.model_flops for stage in plan.stages)
    assert middle / first == pytest.approx(2, rel=0.1) and last / first == pytest.approx(4, rel=0.1)
    # The stages between are interpolated, and all have equally many steps.
    strategy = sum(np.interp(range(4), [0, 1, 3], [first, middle, last])) * 10_000
    assert plan.model_flops == pytest.approx(strategy + 500_000 * plan.stages[-1].model_flops)


def test_the_teacher_is_in_memory_and_frozen_parameters_have_no_moments(recipe, plan):
    boxed = experiments.teacher_of(recipe).shapes()
    count = sum(leaf.size for leaf in jax.tree.leaves(nn.meta.unbox(boxed)))
    for stage in plan.stages:
        assert stage.estimated.teacher == 2 * count  # bfloat16
    optimizer = [stage.estimated.optimizer for stage in plan.stages]
    assert optimizer[0] < 0.6 * optimizer[1] < 0.6 * optimizer[2] < optimizer[3]
    assert sum(dataclasses.astuple(plan.stages[0].estimated)) == plan.stages[0].estimated.total


def test_the_step_of_a_stage_is_lowered_with_the_teacher_split_over_the_mesh(recipe):
    mesh = sharding.make_mesh(sharding.Mesh(data=2, fsdp=2, tensor=2), jax.devices()[:8])
    built = experiments.build_experiment(recipe, mesh)
    frozen = jax.tree.leaves(built.frozen_shapes)
    assert {leaf.dtype.name for leaf in frozen} == {"bfloat16"}
    assert sum(not leaf.sharding.is_fully_replicated for leaf in frozen) > 10
    products = [built.lower(index).as_text().count("stablehlo.dot_general") for index in (2, 3)]
    assert 0 < products[0] < products[1]  # on CPUs the layers run one by one, and the deeper stage has one more
