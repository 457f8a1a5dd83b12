"""The memory of a step: the estimate beside the compiler's figure, and the advice of a run that cannot fit."""

import dataclasses
import re
from pathlib import Path

import jax
import pytest
import tiny
from messages import mentions
from tiers import quick

from bertzoo.cli.main import main
from bertzoo.core import config
from bertzoo.core.errors import OutOfMemory
from bertzoo.core.kinds import config_class
from bertzoo.planning.chips import parse_topology
from bertzoo.planning.estimate import build_on_slice
from bertzoo.runs import training
from bertzoo.runs.configs import Pretrain, Transfer
from bertzoo.runs.experiments import build_experiment
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train import memory, sharding
from bertzoo.train.experiment import Stage
from bertzoo.train.memory import DeviceMemory, ceiling, check_fits, check_memory, step_memory


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Pretrain:
    file = tiny.write_config(tmp_path_factory.mktemp("memory"), "text.txt")
    return config.load(Pretrain, [file], [("stages.0.batch_size", "64")])


@pytest.mark.parametrize("parts", quick([1, 4], 4))
def test_the_estimate_is_near_the_compilers_figure(recipe: Pretrain, parts: int):
    recipe = training.with_microbatches(recipe, [parts, parts])
    compiled = check_fits(build_experiment(recipe).lower(0).compile().memory_analysis())
    assert step_memory(build_experiment(recipe), 0).total == pytest.approx(compiled, rel=0.5)


@pytest.mark.parametrize(
    "name", quick(["tiny", "demo_transfer", "demo_replaced", "albert_base"], "tiny", "demo_transfer")
)
def test_a_ceiling_above_the_estimate_decides_without_a_trace(recipe: Pretrain, name: str, monkeypatch):
    if name != "tiny":
        recipe = config.load(config_class(name), [name])
    built, indices = build_experiment(recipe), range(len(recipe.stages))
    assert all(ceiling(built, index) > 2 * step_memory(built, index).total for index in {0, indices[-1]})
    ample = DeviceMemory(max(ceiling(built, index) for index in indices), None)
    monkeypatch.setattr(memory, "device_memory", lambda: ample)
    monkeypatch.setattr(memory, "step_memory", None)
    check_memory(built)


@pytest.mark.parametrize("free", quick([None, 3], 3))
def test_a_step_that_cannot_fit_names_options_that_do(logged, recipe: Pretrain, monkeypatch: pytest.MonkeyPatch, free):
    """Also if other programs use most of the memory: the options fit the free memory."""
    needed = step_memory(build_experiment(recipe), 0).total
    there = DeviceMemory(needed // 3, None) if free is None else DeviceMemory(10 * needed, needed // free)
    monkeypatch.setattr(memory, "device_memory", lambda: there)
    with pytest.raises(OutOfMemory) as caught:
        check_memory(build_experiment(recipe))
    assert (caught.value.needed, caught.value.available) == (needed, needed // 3)
    assert mentions(str(caught.value), "stage 0", "--stages.0.batch_size")
    parts, rows = re.findall(r"--stages\S+=(\d+)", str(caught.value))
    smaller = training.with_microbatches(recipe, [int(parts)] * 2)
    assert int(parts) * int(rows) == 64
    for index in (0, 1):
        program = build_experiment(smaller).lower(index).compile()
        assert check_fits(program.memory_analysis()) <= there.usable
    check_memory(build_experiment(smaller))
    assert not logged


def test_a_step_that_may_not_fit_warns(logged, recipe: Pretrain, monkeypatch: pytest.MonkeyPatch):
    needed = step_memory(build_experiment(recipe), 0).total
    monkeypatch.setattr(memory, "device_memory", lambda: DeviceMemory(int(0.95 * needed), None))
    check_memory(build_experiment(recipe))
    assert len(logged) == 1 and mentions(logged[0], "stage 0", "--stages.*.accumulate=2")


def test_a_state_larger_than_the_device_has_no_batch_that_fits(recipe: Pretrain, monkeypatch):
    exact = step_memory(build_experiment(recipe), 0).exact
    monkeypatch.setattr(memory, "device_memory", lambda: DeviceMemory(exact - 1, None))
    with pytest.raises(OutOfMemory) as caught:
        check_memory(build_experiment(recipe))
    assert "accumulate" not in str(caught.value)


def test_a_recipe_for_pods_stops_on_a_laptop_before_it_reads_text(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(memory, "device_memory", lambda: DeviceMemory(16 * 10**9, None))
    options = [f"--data.source={tmp_path}/missing.txt", "--model.layers=1", "--mesh.data=-1"]
    options += ["--stages.*.accumulate=1"]  # microbatches, the default on CPUs, would fit
    assert main(["pretrain", "squeezebert", f"--run_dir={tmp_path / 'run'}", *options]) == 2
    assert re.search(r"--stages\.\*\.accumulate=\d+", capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


def test_wide_models_on_cpus_get_microbatches_of_1024_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With 32, 30, 8 and 6 rows of 128 tokens on each device. The last two stages state a number."""
    devices, run = jax.device_count(), RunDirectory(tmp_path)
    rows = [(32, None), (30, None), (8, None), (6, None), (32, 1), (32, 8)]
    stages = tuple(
        Stage(steps=20_000, batch_size=number * devices, max_length=128, accumulate=parts) for number, parts in rows
    )
    wide = dataclasses.replace(config.load(Pretrain, ["bert_base"]), stages=stages)
    assert training.microbatches(wide, run, sharding.make_mesh(wide.mesh)) == [4, 3, 1, 1, 1, 8]
    narrow = dataclasses.replace(wide, model=dataclasses.replace(wide.model, hidden_size=192))
    assert training.microbatches(narrow, run, sharding.make_mesh(narrow.mesh)) == [1, 1, 1, 1, 1, 8]
    chosen = training.with_microbatches(wide, training.microbatches(wide, run, sharding.make_mesh(wide.mesh)))
    assert [stage.accumulate for stage in chosen.stages] == [4, 3, 1, 1, 1, 8]
    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "tpu")
        assert training.microbatches(wide, run, sharding.make_mesh(wide.mesh)) == [1, 1, 1, 1, 1, 8]


def test_a_resumed_run_keeps_the_microbatches_that_it_recorded(tmp_path: Path):
    devices, run = jax.device_count(), RunDirectory(tmp_path)
    values = [("transfer.batch_size", str(32 * devices)), ("distillation.0.batch_size", str(32 * devices))]
    values += [("transfer.max_length", "128"), ("distillation.0.max_length", "128")]
    open_ = config.load(Transfer, ["mobilebert_transfer"], values)
    assert set(training.microbatches(open_, run, sharding.make_mesh(open_.mesh))) == {4}
    run.write_config(training.with_microbatches(open_, [2] * 24 + [1]))
    assert training.microbatches(open_, run, sharding.make_mesh(open_.mesh)) == [2] * 24 + [1]
    stated = config.load(Transfer, ["mobilebert_transfer"], [*values, ("transfer.accumulate", "8")])
    resumed = training.with_microbatches(stated, training.microbatches(stated, run, sharding.make_mesh(stated.mesh)))
    assert [stage.accumulate for stage in resumed.stages] == [8] * 24 + [1]


def test_the_teachers_layers_are_stacked_except_on_cpus():
    made = config.load(Transfer, ["demo_transfer"])
    encoder = build_experiment(made).frozen_shapes["model"]["encoder"]
    assert {f"layers_{index}" for index in range(made.teacher.layers)} <= encoder.keys()
    encoder = build_on_slice(made, parse_topology("v5e:1x1")).frozen_shapes["model"]["encoder"]
    assert "layers_0" not in encoder
    assert {leaf.shape[0] for leaf in jax.tree.leaves(encoder["layers"])} == {made.teacher.layers}
