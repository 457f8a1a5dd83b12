"""Steps that were compiled before the run: the same parameters without a compilation, or a reason and a compilation."""

import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest
import toy
from jax.experimental.compilation_cache import compilation_cache
from messages import mentioning, mentions

from bertzoo.core.errors import UserError
from bertzoo.train import loop, sharding
from bertzoo.train.executable import SavedPrograms, write_programs
from bertzoo.train.experiment import StageSetup
from bertzoo.train.loop import Job
from bertzoo.train.optim import AdamW


@pytest.fixture(autouse=True)
def no_cache():
    """On CPUs, a program that JAX read from its cache cannot be written again."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


def job(mesh: jax.sharding.Mesh, **fields) -> Job:
    """A job with a step of its own, as another process has."""
    setup = StageSetup(objective=toy.Toy(), optimizer=AdamW(learning_rate=0.02), watch=lambda params: {})
    return toy.job(mesh=mesh, stages=[toy.stage(3)], setups=[setup], **fields)


def write(path: Path, mesh: jax.sharding.Mesh) -> Path:
    """A file with the compiled step of the job, which is lowered for shapes, as `bertzoo plan` does it."""
    built = job(mesh).experiment
    rows = sharding.batch_sharding(mesh)
    batch = {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=rows) for name, array in toy.batch(0, 0).items()
    }
    lowered = built.jitted_steps(0)[0].lower(built.state(0), None, batch)
    write_programs(path, mesh, [(lowered, lowered.compile())])
    return path


@pytest.mark.slow
@pytest.mark.parametrize("order", [[0], [0, 1, 3, 2]])  # a slice of a TPU has such an order
def test_a_run_with_saved_steps_compiles_none_and_equals_the_run_without(order: list[int], tmp_path: Path):
    mesh = toy.mesh(len(order), fsdp=min(2, len(order)))
    devices = np.array(jax.devices())[order].reshape(mesh.devices.shape)
    mesh = jax.sharding.Mesh(devices, mesh.axis_names, axis_types=mesh.axis_types)
    file = write(tmp_path / "steps", mesh)
    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **about: str | int) -> None:
        compiled.extend([str(about.get("fun_name"))] * (event == "/jax/core/compile/backend_compile_duration"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        expected = loop.run(job(mesh))
        assert sum("train_step" in name for name in compiled) == 1
        found = loop.run(job(mesh, load_program=SavedPrograms(file, mesh)))
        assert sum("train_step" in name for name in compiled) == 1
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert toy.same(found, expected)


def test_what_differs_is_logged(tmp_path: Path, logged: list[str], monkeypatch: pytest.MonkeyPatch):
    def lower(number: float) -> jax.stages.Lowered:
        return jax.jit(lambda x: x + number).lower(jax.ShapeDtypeStruct((2,), "float32"))

    file, one, two = tmp_path / "steps", toy.mesh(1), toy.mesh(2)
    write_programs(file, one, [(lower(1), lower(1).compile())])
    program = SavedPrograms(file, one)(lower(1))
    assert program is not None and program(jnp.zeros(2)).tolist() == [1, 1]
    assert SavedPrograms(file, one)(lower(2)) is None and mentions(logged[-1], file, "config", "code")
    installed = jaxlib.__version__
    monkeypatch.setattr("importlib.metadata.version", lambda package: f"9.{package}")
    assert SavedPrograms(file, two)(lower(1)) is None
    assert mentions(logged[-1], file, installed, "9.jaxlib", "ids 0 there", "ids 0,1 here")
    assert "config" not in logged[-1]


@pytest.mark.parametrize("content", [None, b"no archive", "empty"])
def test_a_file_without_steps_raises(content: bytes | str | None, tmp_path: Path):
    file = tmp_path / "steps"
    if content == "empty":
        zipfile.ZipFile(file, "w").close()
    elif isinstance(content, bytes):
        file.write_bytes(content)
    with pytest.raises(UserError, match=mentioning("run.executable", file, "--save_executable")):
        SavedPrograms(file, toy.mesh())
