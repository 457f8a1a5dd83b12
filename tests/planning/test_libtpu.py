"""TPUs' own compiler against what is said without it; needs the extra `tpu-plan` (`make test-all` installs it)."""

import dataclasses
import os
import subprocess
import sys

import pytest

from bertzoo.core import config
from bertzoo.planning import chips, compiled, estimate
from bertzoo.runs.pretrain_config import Pretrain

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
def test_the_estimate_is_within_15_percent_of_the_compiler(folder, name, slice_, options):
    recipe = config.load(Pretrain, [name], [tuple(option.split("=")) for option in options])
    recipe = dataclasses.replace(recipe, stages=recipe.stages[:1])
    topology = chips.parse(slice_)
    found = compiled.compile_stages(recipe, topology, folder, print)
    plan = estimate.make(recipe, topology, found)
    for stage in plan.stages:
        assert stage.compiled is not None and stage.fits
        memory, made = stage.estimated, stage.compiled
        # The state and the batch are the arguments, but for the alignment of small arrays.
        assert memory.parameters + memory.optimizer + memory.batch == pytest.approx(made.arguments, rel=0.02)
        assert memory.total == pytest.approx(made.total, rel=0.15)
        assert made.collectives is not None
        if any(option.startswith("mesh.") for option in options):
            assert plan.mesh["data"] < topology.devices
            sent = sum(one.sent for one in made.collectives)
            assert stage.roofline.interconnect == pytest.approx(sent / topology.chip.ici_bandwidth)
            guessed = estimate.make(recipe, topology).stages[0].roofline.interconnect
            assert guessed == pytest.approx(stage.roofline.interconnect, rel=0.3)
            continue
        # Every gradient is summed over all devices, some in bfloat16, the word table's in two parts.
        (one,) = made.collectives
        assert one.kind == "all-reduce" and one.group == topology.devices
        assert 0.5 * memory.parameters < one.size < 2 * memory.parameters
    again = compiled.compile_stages(recipe, topology, folder, print, kept=True)
    assert again == found


def test_what_does_not_fit_is_a_result(folder):
    options = [("model.layers", "1"), ("stages.*.batch_size", "65536"), ("stages.*.steps", "9")]
    recipe = config.load(Pretrain, ["demo"], options)
    topology = chips.parse("v5e:1x1")
    found = compiled.compile_stages(recipe, topology, folder, print)
    for stage in found:
        assert stage is not None and not stage.fits and stage.needed is not None
        assert stage.needed > topology.chip.capacity
    stages = estimate.make(recipe, topology, found).stages
    assert all(stage.estimated.total > stage.capacity for stage in stages)


def test_every_listed_slice_is_known_to_the_compiler():
    program = "import sys; from bertzoo.planning import chips, compiled; "
    program += "print(*[len(compiled.devices(chips.parse(name))) for name in sys.argv[1:]])"
    asked = [f"{chip.name}:{shape}" for chip in chips.CHIPS.values() for shape in chip.slices]
    asked += ["v4:4x4x8", "v5p:8x8x12", "tpu7x:4x4x4"]
    environment = {**os.environ, **compiled.ENVIRONMENT}
    command = [sys.executable, "-c", program, *asked]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert [int(count) for count in out.splitlines()[-1].split()] == [chips.parse(name).devices for name in asked]
