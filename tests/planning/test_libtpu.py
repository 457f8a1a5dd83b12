"""The TPU compiler's figures beside those without it; needs the extra `tpu-plan` (`make test-all` installs it)."""

import dataclasses
import os
import re
import subprocess
import sys

import pytest

from bertzoo.core import config
from bertzoo.planning import chips, compiled, estimate
from bertzoo.runs.configs import Pretrain

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def compiler():
    if not compiled.available():
        pytest.fail(compiled.INSTALL)


SMALL = [
    ("demo", "v5e:2x2", ("model.layers=1",)),
    ("bert_base", "v4:2x2x1", ("model.layers=1", "stages.*.batch_size=32")),
    ("bert_small", "v5e:4x4", ("model.layers=4",)),
    ("bert_small", "v5e:2x2", ("model.layers=1", "stages.*.batch_size=512", "mesh.fsdp=4")),
    ("bert_base", "v5e:2x2", ("model.layers=2", "mesh.tensor=2")),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.mark.parametrize(
    ("name", "slice_", "options"), SMALL, ids=[f"{name}-{options[-1]}" for name, _, options in SMALL]
)
def test_the_state_is_exact_and_the_bound_holds_beside_the_compiler(folder, name, slice_, options):
    recipe = config.load(Pretrain, [name], [tuple(option.split("=")) for option in options])
    recipe = dataclasses.replace(recipe, stages=recipe.stages[:1])
    topology = chips.parse_topology(slice_)
    results = compiled.compile_stages(recipe, topology, folder)
    plan = estimate.make_plan(recipe, topology, results)
    (stage,) = plan.stages
    assert stage.compiled is not None and stage.fits
    memory, step = stage.estimated, stage.compiled
    # The arguments are the state and the batch; padding arrays to tiles only adds to them.
    exact = memory.parameters + memory.optimizer + memory.batch
    assert exact <= step.arguments <= 1.05 * exact, (exact, step.arguments)
    # The program, which grows with the layers and not with the rows, is outside the bound.
    assert step.required - (step.code or 0) <= memory.total <= 5 * step.required, (step.required, memory.total)
    assert step.collectives is not None and step.accessed is not None
    assert step.accessed > memory.parameters  # a step reads and writes every parameter
    sent = sum(one.sent for one in step.collectives)
    assert stage.roofline.interconnect == pytest.approx(sent / topology.chip.ici_bandwidth)
    if not any(option.startswith("mesh.") for option in options):
        # Every gradient is summed over all devices, some in bfloat16, the word embeddings' in two parts.
        (one,) = step.collectives
        assert one.kind == "all-reduce" and one.group == topology.devices
        assert 0.5 * memory.parameters < one.size < 2 * memory.parameters
    assert compiled.compile_stages(recipe, topology, folder) == results


def test_two_slices_sum_a_quarter_of_each_gradient_between_them(folder):
    recipe = config.load(Pretrain, ["demo"], [("model.layers", "1")])
    recipe = dataclasses.replace(recipe, stages=recipe.stages[:1])
    topology = chips.parse_topology("2xv5e:2x2")
    (stage,) = estimate.make_plan(recipe, topology, compiled.compile_stages(recipe, topology, folder)).stages
    assert stage.fits and stage.compiled is not None and stage.compiled.collectives is not None
    groups = {one.kind: one.group for one in stage.compiled.collectives}
    assert groups == {"reduce-scatter": 4, "all-gather": 4, "all-reduce": 4, "all-reduce between slices": 2}
    (between,) = [one for one in stage.compiled.collectives if one.kind.endswith("between slices")]
    # Every gradient once, and the word embeddings' in two parts.
    assert 1 <= between.size / (stage.estimated.parameters / 4) < 2
    sent = sum(one.sent for one in stage.compiled.collectives) - between.sent
    seconds = sent / topology.chip.ici_bandwidth + between.sent / topology.chip.dcn_bandwidth
    assert stage.roofline.interconnect == pytest.approx(seconds)


def test_a_step_that_does_not_fit_is_a_result(folder):
    options = [("model.layers", "1"), ("stages.*.batch_size", "262144"), ("stages.*.steps", "9")]
    recipe = config.load(Pretrain, ["demo"], options)
    topology = chips.parse_topology("v5e:1x1")
    results = compiled.compile_stages(recipe, topology, folder)
    assert list(results) == list(range(len(recipe.stages)))
    for step in results.values():
        assert not step.fits and step.needed is not None and step.needed > topology.chip.capacity
    stages = estimate.make_plan(recipe, topology, results).stages
    assert all(stage.estimated.total > stage.capacity and stage.fits is False for stage in stages)


ATTENTION = """
import sys

import jax

from bertzoo.nn import Dropout
from bertzoo.nn.attention import attend
from bertzoo.nn.modern import attend_near
from bertzoo.nn.platform import traced_for
from bertzoo.planning import chips, compiled
from bertzoo.train import sharding

mesh = sharding.make_mesh(sharding.Mesh(tensor=2), compiled.slice_devices(chips.parse_topology(sys.argv[1])))
short = ((4, 21, 128, 4, 64, 64, 0.1), (2, 512, 512, 6, 57, 33, 0.1))
long = ((2, 2458, 8192, 4, 64, 64, 0.0), (2, 1000, 1000, 4, 64, 64, 0.0, 64))
for rows, queries, keys, heads, key_size, value_size, rate, *reach in (*short, *long):
    function = attend_near if reach else attend

    def both(query, key, value, mask, change):
        def attended(*arrays):
            with traced_for(sharding.platform_of(mesh)):
                return Dropout(rate).apply(
                    {},
                    rngs={"dropout": jax.random.key(0)},
                    method=lambda one: function(*arrays, mask, one, True, *reach)[0],
                )

        context, pull = jax.vjp(attended, query, key, value)
        return context, pull(change)

    shapes = [(queries, heads, key_size), (keys, heads, key_size), (keys, heads, value_size), (keys,)]
    shapes.append((queries, heads, value_size))
    arrays = [jax.ShapeDtypeStruct((rows, *one), "bfloat16", sharding=sharding.batch_sharding(mesh)) for one in shapes]
    print("kernels:", jax.jit(both).lower(*arrays).compile().as_text().count('custom_call_target="tpu_custom_call"'))
"""


@pytest.mark.parametrize("slice_", ["v5e:2x2", "v6e:2x2"])
def test_the_attention_kernels_compile(slice_):
    """Forward and backward, over a mesh; the second sizes fill no tile. Long rows have a kernel for keys and values."""
    command = [sys.executable, "-c", ATTENTION, slice_]
    environment = {**os.environ, **compiled.ENVIRONMENT}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^kernels: (\d+)$", out, re.MULTILINE) == ["2", "2", "3", "3"]


def test_every_listed_slice_is_known_to_the_compiler():
    program = "import sys; from bertzoo.planning import chips, compiled; "
    program += "print(*[len(compiled.slice_devices(chips.parse_topology(name))) for name in sys.argv[1:]])"
    names = [f"{chip.name}:{shape}" for chip in chips.CHIPS.values() for shape in chip.slices]
    names += ["v4:4x4x8", "v5p:8x8x12", "tpu7x:4x4x4"]
    environment = {**os.environ, **compiled.ENVIRONMENT}
    command = [sys.executable, "-c", program, *names]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert [int(count) for count in out.splitlines()[-1].split()] == [
        chips.parse_topology(name).devices for name in names
    ]
