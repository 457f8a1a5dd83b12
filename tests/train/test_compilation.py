"""Compiled steps: their memory against the device's, and where programs are kept."""

import contextlib
import gc
import os
import stat
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import pytest
import toy
from jax.experimental.compilation_cache import compilation_cache
from messages import mentioning

from bertzoo.cli.main import main
from bertzoo.core.errors import OutOfMemory
from bertzoo.train import loop, step
from bertzoo.train.experiment import StageSetup
from bertzoo.train.memory import DeviceMemory, check_fits, device_memory, memory_errors
from bertzoo.train.optim import AdamW
from bertzoo.train.step import StepProgram, keep_programs


def test_every_program_is_announced_and_timed():
    records = toy.Records()
    loop.run(toy.job(reporters=[records]))
    assert [(record["event"], record["step"], record["stage"]) for record in records.compilation()] == [
        ("compiling", 0, 0),
        ("compiled", 0, 0),
        ("compiling", 5, 1),
        ("compiled", 5, 1),
    ]
    for record in records.compilation()[1::2]:
        assert record["seconds"] > 0 and record["memory_bytes"] > 1000
        assert (record["rows"], record["length"]) == (toy.ROWS, toy.STAGES[0].max_length)


@pytest.mark.slow  # trains
def test_a_program_is_dropped_after_its_stage():
    job = toy.job()
    first = weakref.ref(job.experiment.step(0))
    loop.run(job)
    gc.collect()
    assert first() is None and job.experiment.step(1) is job.experiment.step(1)


@pytest.mark.parametrize("shared,traces", [(True, 1), (False, 2)])
def test_only_shared_steps_keep_their_trace(shared: bool, traces: int):
    calls = []
    step = jax.jit(lambda state, frozen, batch: calls.append(state) or state)
    for _ in range(2):
        StepProgram(step, shared=shared).compile(jnp.zeros(2), None, {"rows": jnp.zeros(3)})
    assert len(calls) == traces


@pytest.mark.parametrize("free", [None, 10])
def test_a_step_larger_than_the_device_stops_before_it_runs(monkeypatch: pytest.MonkeyPatch, free: int | None):
    memory = DeviceMemory(1000 if free is None else 10**12, free)
    monkeypatch.setattr("bertzoo.train.memory.device_memory", lambda: memory)
    records, asked = toy.Records(), []

    def advice(stage: int, share: float) -> str:
        asked.append((stage, share))
        return "Use --size=7."

    with pytest.raises(OutOfMemory, match=mentioning("--size=7")) as caught:
        loop.run(toy.job(reporters=[records], memory_advice=advice))
    error = caught.value
    assert error.available == (free or 1000) < error.needed
    assert asked == [(0, error.available / error.needed)]
    assert not records.of("train") and len(records.compilation()) == 1 and error.exit_code == 2


def test_the_bytes_of_a_program_equal_its_arrays():
    """A donated argument and the result that takes its place count once."""
    size = jax.ShapeDtypeStruct((1000, 250), jnp.float32)
    program = jax.jit(lambda x: x + 1).lower(size).compile()
    assert check_fits(program.memory_analysis()) == pytest.approx(2e6, rel=0.01)
    donated = jax.jit(lambda x: x + 1, donate_argnums=0).lower(size).compile()
    assert check_fits(donated.memory_analysis()) == pytest.approx(1e6, rel=0.01)


def test_memory_that_runs_out_in_a_run_is_the_users_error_with_advice():
    total = device_memory().total
    expected = pytest.raises(OutOfMemory, match=mentioning("stage 3", 0.5, f"{total / 1e9:,.1f}"))
    with expected, memory_errors(lambda: 3, lambda stage, share: f"stage {stage} {share}"):
        jnp.zeros((2**45,)).block_until_ready()
    with pytest.raises(OutOfMemory), memory_errors(lambda: 0, lambda stage, share: ""):
        raise MemoryError
    with pytest.raises(jax.errors.JaxRuntimeError), memory_errors(lambda: 0, lambda stage, share: ""):
        raise jax.errors.JaxRuntimeError("INTERNAL: a bug")


@contextlib.contextmanager
def cache_directory(path: str | None):
    names = ("compilation_cache_dir", "compilation_cache_max_size", "persistent_cache_min_compile_time_secs")
    names += ("persistent_cache_enable_xla_caches",)
    before = {f"jax_{name}": getattr(jax.config, f"jax_{name}") for name in names}
    jax.config.update("jax_compilation_cache_dir", path)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def test_programs_are_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with cache_directory(None):
        keep_programs()
        place = Path(jax.config.jax_compilation_cache_dir)
        assert place.is_dir() and place.parent == tmp_path / "bertzoo" / "programs"
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    with cache_directory("elsewhere"):
        keep_programs()
        assert jax.config.jax_compilation_cache_dir == "elsewhere"


def reads_program() -> bool:
    """Whether a run reads its step from the cache; each call has a step of its own, as another process would."""
    records = toy.Records()
    setup = StageSetup(objective=toy.Toy(), optimizer=AdamW(learning_rate=0.02), rule=optax.adam)
    loop.run(toy.job(reporters=[records], stages=[toy.stage(2)], setups=[setup]))
    return "saved_seconds" in records.compilation()[1]


@pytest.mark.slow
def test_a_run_reads_the_programs_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another run's folder then takes the place of the first; tests/parity/test_bucket.py has one in a bucket."""
    monkeypatch.setattr(step, "_QUICKEST", 0)
    run, other = tmp_path / "run", tmp_path / "other"
    with cache_directory(None):
        keep_programs(run)
        assert not reads_program() and reads_program()
        keep_programs(other)
        assert not reads_program()
    (first,), (second,) = (list(folder.glob("jit_train_step-*")) for folder in (run, other))
    assert first.name == second.name


def test_programs_of_another_user_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    another = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    with cache_directory(None):
        for folder in (None, tmp_path / "run"):
            keep_programs(folder)
            assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_commands_that_read_a_model_keep_its_programs(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with cache_directory(None):
        assert main([command, str(tmp_path / "none"), *["a [MASK]"] * (command == "predict")]) == 2
        assert Path(jax.config.jax_compilation_cache_dir).is_relative_to(tmp_path)
