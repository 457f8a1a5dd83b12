"""Checkpoints restore bit for bit on any mesh and are complete or absent; a damaged one is named and skipped."""

import asyncio
import dataclasses
import errno
import functools
import gc
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest
import tensorstore
import toy
import victim
from damage import flip, largest, truncate
from messages import mentioning, mentions

import bertzoo
from bertzoo.core.errors import CheckpointError, SaveError
from bertzoo.train import contents, optim
from bertzoo.train import state as states
from bertzoo.train.checkpoint import Checkpoints, find_checkpoint, restore_params, steps_in

OPTIMIZER = optim.build(optim.AdamW(learning_rate=0.1), 10)


@functools.cache
def abstract(devices: int = 1, fsdp: int = 1, tensor: int = 1) -> states.State:
    return states.abstract(toy.Toy(), OPTIMIZER, toy.mesh(devices, fsdp=fsdp, tensor=tensor))


@functools.cache
def start() -> states.State:
    return toy.copy(states.fresh(toy.Toy(), OPTIMIZER, toy.mesh(), seed=0))


def state_at(step: int, devices: int = 1, **sizes: int) -> states.State:
    """A state in which every leaf depends on the step."""
    state = jax.tree.map(
        lambda x, want: jax.device_put(x + x.dtype.type(step), want.sharding), start(), abstract(devices, **sizes)
    )
    return dataclasses.replace(state, position={"stage": state.step + 0, "row": state.step * 16})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("template")
    with Checkpoints(directory) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(state_at(step), loss=float(step % 3))  # the best is 3, with 0
    return directory


@pytest.fixture
def saved(template: Path, tmp_path: Path) -> Path:
    """A directory with the checkpoints 1, 2 and 3."""
    return Path(shutil.copytree(template, tmp_path / "checkpoints"))


def restore(directory: Path) -> states.State | None:
    with Checkpoints(directory) as checkpoints:
        return checkpoints.restore_latest(abstract())


@pytest.mark.parametrize(("before", "after"), [(8, 1), (8, 4), (1, 8), (8, 8)])
def test_restore_onto_another_mesh(tmp_path, before: int, after: int):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(state_at(5, before, tensor=2 if before > 1 else 1))
        checkpoints.wait()
        wanted = abstract(after, fsdp=2 if after > 1 else 1)
        restored = checkpoints.restore_latest(wanted)
    assert toy.same(restored, state_at(5))
    places = jax.tree.map(lambda leaf, want: leaf.sharding == want.sharding, restored, wanted)
    assert all(jax.tree.leaves(places))


def test_a_state_may_be_donated_during_its_save(tmp_path):
    scramble = jax.jit(lambda tree: jax.tree.map(lambda x: x * 0 + 1, tree), donate_argnums=0)
    with Checkpoints(tmp_path) as checkpoints:
        for step in (4, 5, 6):
            state = state_at(step)
            checkpoints.save(state)
            state = scramble(state)
            checkpoints.wait()
            assert toy.same(checkpoints.restore_latest(abstract()), state_at(step))


def test_keeps_the_last_and_best_checkpoints_with_their_manifests(tmp_path):
    with Checkpoints(tmp_path, keep_last=2, keep_best=1) as checkpoints:
        for step, loss in enumerate([5.0, 1.0, 3.0, None, 2.0, None], start=1):
            checkpoints.save(state_at(step), loss=loss)
        checkpoints.wait()
        assert steps_in(checkpoints.directory) == [2, 5, 6]
        assert checkpoints.latest() == tmp_path / "6"
    relative = Path(os.path.relpath(tmp_path))
    with Checkpoints(relative, keep_last=2, keep_best=1) as checkpoints:
        checkpoints.save(state_at(7), loss=4.0)
        checkpoints.wait()
        assert checkpoints.latest() == relative / "7"  # as the user typed it
    assert {path.name for path in tmp_path.iterdir()} == {contents.RUN} | {
        f"{step}{suffix}" for step in (2, 6, 7) for suffix in ("", contents.SUFFIX)
    }
    assert find_checkpoint(tmp_path, "best") == tmp_path / "2"


def test_restore_parameters_alone(saved: Path):
    restored = [restore_params(saved, abstract().params, which) for which in ("latest", "best", 2)]
    assert [step for _, step in restored] == [3, 3, 2]
    assert all(toy.same(params, state_at(step).params) for params, step in restored)


@pytest.mark.parametrize("which", [9, "best", "latest"])
def test_a_missing_checkpoint_raises(tmp_path, which):
    with pytest.raises(CheckpointError, match=mentioning(tmp_path / "nowhere")):
        find_checkpoint(tmp_path / "nowhere", which)
    with pytest.raises(CheckpointError, match=mentioning(tmp_path)):
        find_checkpoint(tmp_path, which)


def remove(path: Path) -> Path:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return path


DAMAGE = {
    "a flipped bit in the arrays": lambda at: flip(largest(at / "params" / "d")),
    "a flipped bit in the metadata": lambda at: flip(at / "training" / "_METADATA"),
    "a truncated array file": lambda at: truncate(largest(at / "training" / "d")),
    "an emptied file": lambda at: (
        (at / "params" / "manifest.ocdbt").write_bytes(b"") or at / "params" / "manifest.ocdbt"
    ),
    "half of it deleted": lambda at: remove(at / "training"),
    "its commit marks deleted": lambda at: remove(at / "commit_success.txt"),
    "a torn manifest": lambda at: truncate(contents.path_of(at)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_newest_checkpoint_is_named_and_skipped(saved: Path, damage, caplog):
    file = damage(saved / "3")
    with Checkpoints(saved) as checkpoints, caplog.at_level(logging.WARNING):
        restored = checkpoints.restore_latest(abstract())
        assert toy.same(restored, state_at(2))
        [message] = [record.getMessage() for record in caplog.records if record.name.startswith("bertzoo")]
        assert mentions(message, file, "checkpoint 2")
        # The run resumes from there and reaches the same step again.
        checkpoints.save(state_at(3))
        checkpoints.wait()
        assert toy.same(checkpoints.restore_latest(abstract()), state_at(3))
    assert (saved / "damaged-3").is_dir()


def test_a_checkpoint_killed_before_its_manifest_restores_unless_damaged(saved: Path):
    contents.path_of(saved / "3").unlink()
    assert toy.same(restore(saved), state_at(3))
    truncate(largest(saved / "3" / "params" / "d"))
    assert toy.same(restore(saved), state_at(2))


def test_an_error_names_all_damaged_checkpoints_and_moves_none(saved: Path):
    files = [flip(largest(saved / str(step) / "params" / "d")) for step in (1, 2, 3)]
    with pytest.raises(CheckpointError, match=mentioning(*files)):
        restore(saved)
    assert sorted(path.name for path in saved.iterdir() if path.is_dir()) == ["1", "2", "3"]
    with pytest.raises(CheckpointError, match=mentioning(files[2])):
        restore_params(saved, abstract().params)


def test_a_checkpoint_of_another_model_raises_and_is_not_damage(saved: Path):
    def wider(leaf):
        return jax.ShapeDtypeStruct(tuple(2 * size for size in leaf.shape), leaf.dtype, sharding=leaf.sharding)

    renamed = dataclasses.replace(abstract(), params={"other": abstract().params["output"]})
    for other in (jax.tree.map(wider, abstract()), renamed):
        with Checkpoints(saved) as checkpoints, pytest.raises(CheckpointError, match=mentioning(saved / "3", "model")):
            checkpoints.restore_latest(other)
    assert sorted(path.name for path in saved.iterdir() if path.is_dir()) == ["1", "2", "3"]


def test_a_checkpoint_copied_over_another_is_rejected(saved: Path, caplog):
    """An older step over the newest one, with its manifest or without one, as earlier versions may have written it."""
    newest = saved / "3"
    shutil.rmtree(newest)
    shutil.copytree(saved / "2", newest)
    shutil.copy(contents.path_of(saved / "2"), contents.path_of(newest))
    readers = [contents.verify, contents.read_contents, lambda path: restore_params(path.parent, abstract().params)]
    for reader in readers:
        with pytest.raises(CheckpointError, match=mentioning(newest, "step 2")):
            reader(newest)
    old = json.loads(contents.path_of(newest).read_text())
    contents.path_of(newest).write_text(json.dumps({"files": old["files"]}))
    for reader in readers[1:]:
        with pytest.raises(CheckpointError, match=mentioning(newest, "step 2")):
            reader(newest)
    with Checkpoints(saved) as checkpoints:
        restored = checkpoints.restore_latest(abstract())
    assert restored is not None and int(restored.step) == 2 and mentions(caplog.text, newest, "step 2")


def test_a_checkpoint_of_another_run_is_rejected(saved: Path, tmp_path):
    with Checkpoints(tmp_path / "other") as checkpoints:
        checkpoints.save(state_at(3))
    shutil.rmtree(saved / "3")
    for name in ("3", f"3{contents.SUFFIX}"):
        source = tmp_path / "other" / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, saved / name)
    ids = [(folder / contents.RUN).read_text() for folder in (saved, tmp_path / "other")]
    with pytest.raises(CheckpointError, match=mentioning(saved / "3", *ids)):
        restore_params(saved, abstract().params)
    assert restore_params(saved, abstract().params, 2)[1] == 2


def test_checkpoints_copied_without_the_run_id_are_continued(saved: Path):
    identity = (saved / contents.RUN).read_text()
    (saved / contents.RUN).unlink()
    assert restore_params(saved, abstract().params)[1] == 3
    with Checkpoints(saved) as checkpoints:
        checkpoints.save(state_at(4))
    assert (saved / contents.RUN).read_text() == identity and restore_params(saved, abstract().params)[1] == 4


def test_manifests_of_earlier_versions_are_read(saved: Path):
    for step in (2, 3):
        path = contents.path_of(saved / str(step))
        path.write_text(json.dumps({"files": json.loads(path.read_text())["files"]}))
    (saved / contents.RUN).unlink()
    assert contents.verify(saved / "3") and restore_params(saved, abstract().params)[1] == 3


def test_the_manifest_covers_every_file(template: Path):
    covered = json.loads(contents.path_of(template / "3").read_text())["files"]
    files = {str(path.relative_to(template / "3")) for path in (template / "3").rglob("*") if path.is_file()}
    assert covered.keys() == files and len(files) > 5


# A full disk.


def start_victim(directory: Path, moment: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(bertzoo.__file__).parents[1])}
    command = [sys.executable, victim.__file__, str(directory), moment]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_full_disk_for_another_file_of_the_run_names_it_and_the_last_checkpoint(saved: Path):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/metrics.jsonl")
    parts = "runs/metrics.jsonl", os.strerror(errno.ENOSPC), saved / "3"
    with pytest.raises(SaveError, match=mentioning(*parts)), Checkpoints(saved):
        raise full
    with pytest.raises(FileNotFoundError), Checkpoints(saved):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "runs/metrics.jsonl")


def test_only_tracebacks_of_abandoned_writes_are_hidden(tmp_path, caplog):
    """asyncio logs one for each array that orbax could not write."""
    (tmp_path / "file").touch()

    async def abandon() -> None:
        store = {"driver": "file", "path": f"{tmp_path}/file/"}  # a folder with the name of a file
        written = (await tensorstore.KvStore.open(store)).write("x", b"1").__await__()
        hidden, future = next(written), asyncio.get_running_loop().create_future()
        future.set_exception(ValueError("of the host"))
        in_orbax: dict[str, Any] = {}
        exec(compile("async def fail(): raise ValueError('in orbax')", "orbax/checkpoint.py", "exec"), in_orbax)
        task = asyncio.create_task(in_orbax["fail"]())
        await asyncio.wait([hidden, task])

    asyncio.run(abandon())
    gc.collect()
    assert [str(record.exc_info and record.exc_info[1]) for record in caplog.records] == ["of the host"]


@pytest.mark.parametrize(
    ("where", "number"), [("manifest", errno.ENOSPC), ("orbax", errno.EFBIG), ("orbax", errno.EDQUOT)]
)
def test_a_full_disk_raises_and_keeps_checkpoints(saved: Path, where: str, number: int, monkeypatch):
    with Checkpoints(saved, keep_last=5) as checkpoints:
        with monkeypatch.context() as patch:

            def full(*_args, **_kwargs):  # orbax's error is a ValueError with the specification of the whole store
                raise ValueError(f"RESOURCE_EXHAUSTED: Failed writing: {os.strerror(number)} [spec={'x' * 999}]")

            if where == "manifest":
                patch.setattr(contents, "seal", full)
            else:
                patch.setattr(checkpoints._manager, "save", full)
            parts = "checkpoint 4", saved / "4", os.strerror(number), saved / ("4" if where == "manifest" else "3")
            with pytest.raises(SaveError, match=mentioning(*parts)) as caught:
                checkpoints.save(state_at(4))
                checkpoints.wait()
            assert "xxx" not in str(caught.value)
        assert steps_in(checkpoints.directory)[:3] == [1, 2, 3]
        checkpoints.save(state_at(5))
        checkpoints.wait()
        assert toy.same(checkpoints.restore_latest(abstract()), state_at(5))


def test_a_failed_write_raises_and_keeps_checkpoints(tmp_path):
    process = start_victim(tmp_path, "full")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    first, failure, third = said.splitlines()
    assert (first, third) == ("first saved", "third saved")
    assert failure.startswith("CheckpointError: ") and mentions(failure, "checkpoint 2", tmp_path, tmp_path / "1")
    with Checkpoints(tmp_path) as checkpoints:
        assert steps_in(checkpoints.directory) == [1, 3]
        assert toy.same(checkpoints.restore_latest(jax.eval_shape(lambda: victim.state(0))), victim.state(3))


# A kill.


@pytest.mark.slow
def test_a_kill_at_any_moment_of_a_save_leaves_a_checkpoint_that_restores(tmp_path):
    moments = ("0.05", "0.4", "0.7", "commit", "manifest")
    running = {moment: start_victim(tmp_path / moment, moment) for moment in moments}
    abstract = jax.eval_shape(lambda: victim.state(0))
    for moment, process in running.items():
        said, _ = process.communicate(timeout=120)
        assert (process.returncode, said) == (-signal.SIGKILL, "first saved\n"), moment
        steps = [int(path.name) for path in (tmp_path / moment).iterdir() if path.name.isdecimal()]
        with Checkpoints(tmp_path / moment) as checkpoints:
            restored = checkpoints.restore_latest(abstract)
            assert restored is not None and int(restored.step) == max(steps), moment
            assert toy.same(restored, victim.state(max(steps))), moment
            # The run resumes: partial files of the kill are removed, and the lost step is saved again.
            checkpoints.save(victim.state(3))
            checkpoints.wait()
            assert not list((tmp_path / moment).glob("*tmp*")), moment
            assert toy.same(checkpoints.restore_latest(abstract), victim.state(3)), moment
    assert (tmp_path / "manifest" / "2").is_dir()
    assert not any((tmp_path / moment / "2").exists() for moment in ("0.05", "commit"))
