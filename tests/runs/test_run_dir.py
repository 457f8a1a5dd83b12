"""Locks of a run's directory, and its files after a failed start."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
from messages import mentioning, undocumented

from bertzoo.core import atomic, config
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.runs.configs import Pretrain
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train.experiment import total_steps


def fail() -> None:
    raise ConfigError("it was refused")


def test_a_rejected_start_leaves_no_directory(tmp_path):
    run = tmp_path / "some" / "where" / "run"
    with pytest.raises(ConfigError), RunDirectory(run).shared():
        assert (run / ".lock").exists()
        fail()
    assert not list(tmp_path.iterdir())


def test_a_directory_that_existed_before_stays(tmp_path):
    with pytest.raises(ConfigError), RunDirectory(tmp_path).locked():
        fail()
    assert tmp_path.is_dir() and not list(tmp_path.iterdir())
    (tmp_path / "corpus").mkdir()  # of a run that ended while it tokenised
    for _ in range(2):
        with pytest.raises(ConfigError), RunDirectory(tmp_path).locked():
            fail()
        assert [path.name for path in tmp_path.iterdir()] == ["corpus", ".lock"]


def test_a_directory_of_other_files_is_not_a_run(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=mentioning(tmp_path, "notes.txt")), RunDirectory(tmp_path).locked():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "config.toml").write_text("seed = 1\n")
    with RunDirectory(tmp_path).locked():
        pass


def test_files_written_before_an_error_stay(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="elsewhere"), run.locked():
        run.corpus.mkdir()
        raise FileNotFoundError("elsewhere")
    assert run.corpus.is_dir()
    with run.locked():
        pass
    assert run.path.is_dir()


@pytest.mark.parametrize(
    ("key", "value", "fixed"),
    [
        ("seed", "1", True),
        ("run.log_every", "7", False),
        ("data.heldout", "0.5", True),
        ("stages.0.masking_share", "[0.2, 0.1]", True),
        ("stages.1.masking_share", "[0.2, 0.1]", False),
    ],
)
def test_a_run_with_a_checkpoint_rejects_changes_of_its_batches(tmp_path, key: str, value: str, fixed: bool):
    """The seed decides the order of the rows: with another one, some would be read twice and others never."""
    new, run = config.load(Pretrain, ["demo"], [(key, value)]), RunDirectory(tmp_path)
    run.write_config(config.load(Pretrain, ["demo"]))
    (run.path / "checkpoints" / "3").mkdir(parents=True)
    if fixed:
        with pytest.raises(ConfigError, match=mentioning(run.path, f"{key}: ", f" -> {value}")):
            run.changes(new)
    else:
        assert [line.split(":")[0] for line in run.changes(new)] == [key]


def test_fewer_steps_than_a_run_has_done_are_rejected(tmp_path):
    run, old = RunDirectory(tmp_path), config.load(Pretrain, ["demo"])
    run.write_config(old)
    done, fewer = total_steps(old.stages), old.stages[-1].steps - 1
    (run.path / "checkpoints" / str(done)).mkdir(parents=True)
    with pytest.raises(ConfigError, match=mentioning(run.path, done, done - 1)):
        run.changes(config.load(Pretrain, ["demo"], [(f"stages.{len(old.stages) - 1}.steps", str(fewer))]))


def test_one_process_at_a_time(tmp_path):
    run = RunDirectory(tmp_path / "run")
    for _ in range(2):
        with run.locked(), pytest.raises(UserError, match=mentioning(run.path)), RunDirectory(run.path).locked():
            pass


def test_a_removed_lock_file_does_not_lock(tmp_path, monkeypatch):
    """Another process gives up and removes the file between this one's opening and locking it."""
    usual, gone = fcntl.flock, []

    def flock(file, how: int) -> None:
        usual(file, how)
        if not gone:
            gone.append(os.fstat(file.fileno()).st_ino)
            (tmp_path / ".lock").rename(tmp_path / "old")

    monkeypatch.setattr(atomic.fcntl, "flock", flock)
    with RunDirectory(tmp_path).locked():
        assert (tmp_path / ".lock").stat().st_ino != gone[0]
        with pytest.raises(UserError, match=mentioning(tmp_path)), RunDirectory(tmp_path).locked():
            pass


def test_a_file_system_without_locks_raises(tmp_path, monkeypatch):
    def flock(file, how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(atomic.fcntl, "flock", flock)
    message = mentioning(tmp_path, os.strerror(errno.ENOSYS))
    with pytest.raises(UserError, match=message), RunDirectory(tmp_path).locked():
        pass


def test_a_lock_file_that_keeps_being_replaced_locks_in_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic.os.path, "samestat", lambda one, other: False)
    run, message = RunDirectory(tmp_path), mentioning(tmp_path)
    with run.locked(), pytest.raises(UserError, match=message), RunDirectory(tmp_path).locked():
        pass


def test_the_formats_page_names_every_file_and_key(finished_run: Path):
    assert undocumented(finished_run) == set()


def test_what_killed_processes_left_is_removed(tmp_path):
    (tmp_path / ".processes-0123").touch()
    with RunDirectory(tmp_path).shared():
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
