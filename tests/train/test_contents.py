"""The contents of a checkpoint are read without devices and without its arrays, and damage is named."""

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
import victim
from damage import flip, largest
from messages import mentioning

import bertzoo
from bertzoo.core.errors import CheckpointError
from bertzoo.train import contents, optim
from bertzoo.train import state as states
from bertzoo.train.checkpoint import Checkpoints


@pytest.fixture(scope="module")
def abstract() -> states.State:
    optimizer = optim.build(optim.Lamb(learning_rate=0.1), 10)
    return states.abstract(toy.Toy(), optimizer, toy.mesh(8, fsdp=2, tensor=2))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, abstract: states.State) -> Path:
    """A checkpoint of step 7, stage 1 and row 48."""
    directory = tmp_path_factory.mktemp("template")
    values = {"step": 7, "position/stage": 1, "position/row": 48}

    def fill(path: tuple, want: jax.ShapeDtypeStruct) -> jax.Array:
        value = values.get(jax.tree_util.keystr(path, simple=True, separator="/"), 5)
        return jax.device_put(jnp.full(want.shape, value, want.dtype), want.sharding)

    with Checkpoints(directory) as checkpoints:
        checkpoints.save(jax.tree.map_with_path(fill, abstract), loss=1.25)
    return directory


@pytest.fixture
def checkpoint(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "checkpoints")) / "7"


def test_names_shapes_dtypes_and_shardings_are_those_saved(template: Path, abstract: states.State):
    found = contents.read_contents(template / "7")
    assert (found.step, found.position, found.loss) == (7, {"stage": 1, "row": 48}, 1.25)
    assert found.mesh == {"data": 2, "fsdp": 2, "tensor": 2}
    assert found.size == sum(file.stat().st_size for file in (template / "7").rglob("*") if file.is_file())
    rest = {f"{name}/{path}".rstrip("/"): leaf for name in ("step", "opt_state", "key", "position")
            for path, leaf in states.named(getattr(abstract, name)).items()}  # fmt: skip
    for arrays, expected in ((found.params, states.named(abstract.params)), (found.training, rest)):
        assert arrays.keys() == expected.keys() and arrays
        for path, leaf in expected.items():
            assert (arrays[path].shape, arrays[path].dtype) == (leaf.shape, str(leaf.dtype)), path
            split = [axes for axes in arrays[path].split if axes]
            assert split == [axis for axis in leaf.sharding.spec if axis], path
    assert found.params["hidden/kernel"].split == ("fsdp", "tensor")
    assert found.training["opt_state/1/0/nu/hidden/kernel"].split == ("fsdp", "tensor")


@pytest.mark.slow  # starts a process
def test_no_device_is_needed(template: Path):
    program = (
        f"from bertzoo.train import contents\nprint(contents.read_contents({str(template / '7')!r}).position['row'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(bertzoo.__file__).parents[1]), "JAX_PLATFORMS": "nowhere"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["48"]


def test_no_array_is_read(tmp_path):
    draw = np.random.default_rng(0)
    state = dataclasses.replace(victim.state(2), params={"w": jnp.asarray(draw.normal(size=100_000), jnp.float32)})
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(state)
    before, file = contents.read_contents(tmp_path / "2"), largest(tmp_path / "2" / "params")
    assert before.params["w"].shape == (100_000,) and before.loss is None and before.mesh == {}
    assert file.stat().st_size > 100_000
    file.write_bytes(file.read_bytes()[:1000] + bytes(200_000) + file.read_bytes()[201_000:])
    assert contents.read_contents(tmp_path / "2") == before
    with pytest.raises(CheckpointError, match=mentioning(file)):
        contents.verify(tmp_path / "2")


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "without its manifest"])
@pytest.mark.parametrize(
    ("damage", "names"),
    [
        (lambda at: shutil.rmtree(at), "checkpoints/7"),
        (lambda at: shutil.rmtree(at / "training"), "training"),
        (lambda at: (at / "params" / "_METADATA").write_text("{"), "params"),
        (lambda at: (at / "params" / "_METADATA").write_text("[]"), "params"),
        (lambda at: (at / "params" / "_sharding").write_text('{"x": 1}'), "params"),
        (lambda at: (at / "training" / "manifest.ocdbt").write_bytes(b""), "training"),
        (lambda at: (at / "metrics" / "metrics").write_text('{"los": 1}'), "metrics"),
        (lambda at: flip(at / "params" / "manifest.ocdbt"), "params"),
    ],
)
def test_damage_raises_an_error_of_one_line(checkpoint: Path, damage: Callable[[Path], None], names: str, sealed: bool):
    if not sealed:
        contents.path_of(checkpoint).unlink()
    damage(checkpoint)
    with pytest.raises(CheckpointError, match=mentioning(checkpoint, names if sealed else "")) as error:
        contents.read_contents(checkpoint)
    assert "\n" not in str(error.value)


def test_a_changed_sharding_fails_its_checksum(checkpoint: Path):
    file = checkpoint / "training" / "_sharding"
    file.write_text(file.read_text().replace("fsdp", "data"))
    with pytest.raises(CheckpointError, match=mentioning(file)):
        contents.read_contents(checkpoint)
