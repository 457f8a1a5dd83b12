"""The plan without a compiler: exact state, the bound of activations, derived traffic, and the lowered step."""

import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest
import tiny
from jax.extend import core
from messages import mentioning, mentions

from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.nn.flops import peak_beside_results
from bertzoo.planning import chips, compiled, estimate
from bertzoo.runs.configs import Pretrain, Transfer
from bertzoo.runs.experiments import build_experiment
from bertzoo.train import memory, sharding


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    file = tiny.write_config(tmp_path_factory.mktemp("plan"), "text.txt")
    return lambda **options: config.load(Pretrain, [file], [(k.replace("__", "."), v) for k, v in options.items()])


def first_stage(recipe: Pretrain, slice_: str = "v5e:2x2", **sizes) -> estimate.StagePlan:
    topology = chips.parse_topology(slice_)
    if sizes:
        topology = dataclasses.replace(topology, chip=dataclasses.replace(topology.chip, **sizes))
    return estimate.make_plan(dataclasses.replace(recipe, stages=recipe.stages[:1]), topology).stages[0]


@pytest.fixture(scope="module")
def usual(load) -> estimate.StagePlan:
    return first_stage(load())


def test_the_state_is_exact(load, usual):
    recipe, memory = load(), usual.estimated
    count = sum(leaf.size for leaf in jax.tree.leaves(nn.unbox(build_experiment(recipe).boxed)))
    assert memory.parameters == memory.gradients == 4 * count
    assert memory.optimizer == pytest.approx(8 * count, abs=16)  # two moments, and the step counter
    assert memory.batch == 4 * (4 * (3 * 32 + 3 * 5) + 2 * 4)  # 4 rows of 32 tokens, 5 predictions, 2 numbers a row
    assert memory.teacher == 0
    assert memory.total == memory.exact + memory.activations == sum(dataclasses.asdict(memory).values())
    topology = chips.parse_topology("v5e:2x2")
    assert estimate.make_plan(recipe, topology).checkpoint_bytes == pytest.approx(12 * count, abs=64)


def test_sharded_parameters_take_their_part(load, usual):
    whole, parts = usual.estimated, first_stage(load(mesh__fsdp="4")).estimated
    assert parts.parameters == parts.gradients < whole.parameters
    assert parts.optimizer == pytest.approx(2 * parts.parameters, abs=16)
    assert parts.batch == whole.batch
    # The bound has the other devices' parts gathered at once.
    assert parts.activations == whole.activations + whole.parameters - parts.parameters


def test_microbatches_hold_fewer_activations_beside_the_sum_of_their_gradients(load, usual):
    parts = first_stage(load(stages__0__accumulate="2"))
    assert (usual.rows, parts.rows) == (4, 2)
    assert parts.estimated.gradients == 2 * usual.estimated.gradients
    assert parts.estimated.batch == usual.estimated.batch
    assert parts.estimated.activations < usual.estimated.activations


@pytest.mark.slow  # traces four steps
def test_remat_and_fewer_rows_lower_the_bound(load):
    def bound(rows: int, remat: str) -> int:
        recipe = load(model__layers="3", compute__remat=remat)
        return peak_beside_results(build_experiment(recipe).trace_gradients(0, rows))

    usual = bound(64, "false")
    assert bound(64, "true") < 0.8 * usual and bound(16, "false") < usual / 3


def test_the_bound_holds_for_the_compiler_of_this_machine(load):
    """The temporaries of the gradient function, compiled for the CPU, without the returned gradients."""
    recipe, rows = load(model__layers="2", compute__dtype="float32"), 64
    jaxpr = build_experiment(recipe).trace_gradients(0, rows)
    arguments: Any = [variable.aval for variable in jaxpr.invars]
    run = jax.jit(core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, ())))
    memory: Any = run.lower(*arguments).compile().memory_analysis()
    assert memory.temp_size_in_bytes <= peak_beside_results(jaxpr)


def test_a_stage_fits_does_not_fit_or_needs_the_compiler(load, usual):
    memory = usual.estimated
    for capacity, fits, part in (
        (memory.ample, True, "remat"),
        (memory.ample - 1, None, "--compute.remat=true"),
        (memory.exact, None, "--stages.0.accumulate=2"),
        (memory.exact - 1, False, "--mesh.fsdp=2"),
    ):
        stage = first_stage(load(), hbm=capacity / chips.GIB)
        assert (stage.capacity, stage.fits) == (capacity, fits)
        assert mentions(stage.advice, part)


def test_the_gradients_are_sent_to_all_who_share_the_rows(usual):
    sent = usual.roofline.interconnect * chips.CHIPS["v5e"].ici_bandwidth
    assert sent == pytest.approx(1.5 * usual.estimated.parameters, rel=1e-4)


def test_slices_sum_their_parts_of_the_gradients_over_the_network_between_them(load):
    """In a slice of 4 devices each sums a quarter of every gradient with the other slice's."""
    alone = first_stage(load(stages__0__batch_size="8"), "v5e:2x2")
    stage = first_stage(load(stages__0__batch_size="8"), "2xv5e:2x2")
    between = alone.estimated.parameters / 4 / chips.CHIPS["v5e"].dcn_bandwidth
    assert stage.roofline.interconnect == pytest.approx(alone.roofline.interconnect + between, rel=1e-4)
    mesh = estimate.build_on_slice(load(mesh__fsdp="2"), chips.parse_topology("2xv5e:2x2")).mesh
    assert [[one.slice_index for one in row.flat] for row in mesh.devices] == [[0, 0], [0, 0], [1, 1], [1, 1]]
    with pytest.raises(ConfigError, match=mentioning("data=1", "2 slices")):
        estimate.build_on_slice(load(mesh__fsdp="8"), chips.parse_topology("2xv5e:2x2"))


def test_fsdp_gathers_parameters_and_scatters_gradients(load, usual):
    """A gather in bfloat16, and half of the sum over all devices in every microbatch."""
    for accumulate in (1, 2):
        options = {"compute__dtype": "bfloat16", "stages__0__accumulate": str(accumulate)}
        parts = first_stage(load(mesh__fsdp="4", **options))
        split = 4 * (usual.estimated.parameters - parts.estimated.parameters) / 3  # bytes of arrays before the split
        more = (parts.roofline.interconnect - usual.roofline.interconnect) * chips.CHIPS["v5e"].ici_bandwidth
        assert more == pytest.approx((0.75 * accumulate + 0.75 / 2 - 1.5) * split, rel=1e-3)


@pytest.mark.slow
def test_a_teacher_is_gathered_too():
    """A device needs room for the parts of other devices, and sends its own part in the teacher's format."""
    options = [("mesh.fsdp", "2"), ("teacher.layers", "1"), ("model.layers", "1")]
    recipe = config.load(Transfer, ["demo_transfer"], options)
    topology = chips.parse_topology("v5e:2x2")
    built = estimate.build_on_slice(recipe, topology)
    missing = memory.bytes_of(built.frozen_shapes, whole=True) - memory.bytes_of(built.frozen_shapes)
    plan = estimate.make_plan(recipe, topology).stages[0]
    student = built.state(plan.index).params
    gathered = missing + memory.bytes_of(student, whole=True) - memory.bytes_of(student)
    bound = peak_beside_results(built.trace_gradients(plan.index, plan.rows))
    assert missing > 0 and plan.estimated.activations == bound + gathered
    sent = 0.0
    for leaf in jax.tree.leaves(student):  # two devices split the parameters, and two pairs of them the rows
        size = memory.bytes_of(leaf)
        sent += 3 * size if "fsdp" in leaf.sharding.spec else 1.5 * size  # scatter, sum over data and gather
    assert recipe.compute.dtype == "float32" and recipe.stages[plan.index].microbatches == 1
    assert plan.roofline.interconnect * topology.chip.ici_bandwidth == pytest.approx(sent + missing, rel=1e-6)


def test_the_memory_roofline_counts_the_arrays_of_a_step(load, usual):
    memory, bandwidth = usual.estimated, chips.CHIPS["v5e"].hbm_bandwidth
    state = memory.parameters + memory.optimizer
    assert usual.roofline.memory == pytest.approx((2 * state + memory.batch) / bandwidth)
    result = compiled.CompiledStep(seconds=1.0, arguments=state, temporaries=10**8, code=10**6, collectives=())
    topology = chips.parse_topology("v5e:2x2")
    line = estimate.make_plan(load(), topology, {0: result}).stages[0].roofline
    assert line.memory == pytest.approx((2 * state + 10**8 + 10**6) / bandwidth) and line.interconnect == 0


def test_the_step_is_lowered_with_its_state_batch_and_mesh(load):
    recipe = load(mesh__fsdp="2", compute__dtype="bfloat16")
    built = build_experiment(recipe, sharding.make_mesh(recipe.mesh))
    lowered = built.lower(1)
    sizes = [math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(lowered.args_info)]
    state = built.state(1)
    held = sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(state))
    batch = 4 * (8 * (3 * 48 + 3 * 7) + 2 * 8)
    assert sum(sizes) == held + batch
    donated = [leaf.donated for leaf in jax.tree.leaves(lowered.args_info)]
    assert sum(donated) == len(jax.tree.leaves(state))
    assert '"fsdp"=2' in lowered.as_text()
