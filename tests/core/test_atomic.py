"""Files appear complete or not at all."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from messages import mentioning

from bertzoo.core import atomic, tables
from bertzoo.core.errors import UserError


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    atomic.write_json(file, {"a": 1})
    with pytest.raises(KeyError), atomic.replacing(file) as temporary:
        temporary.write_text("half")
        raise KeyError
    with pytest.raises(OSError) as caught, atomic.replacing(file):
        raise OSError(28, "No space left on device")
    assert file.read_text() == '{\n "a": 1\n}\n' and [*tmp_path.iterdir()] == [file]
    assert caught.value.filename == str(file)


def test_a_link_with_the_temporary_name_redirects_no_write(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("mine")
    for link in (Path.symlink_to, Path.hardlink_to):
        link(tmp_path / "x.json.tmp", tmp_path / "thesis")
        atomic.write_json(tmp_path / "x.json", 1)
        assert (tmp_path / "thesis").read_text() == "mine" and not (tmp_path / "x.json.tmp").exists()


def test_a_link_that_appears_at_the_temporary_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis").write_text("mine")
    unlink = Path.unlink

    def race(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        path.symlink_to("thesis")

    with monkeypatch.context() as patch, pytest.raises(FileExistsError):
        patch.setattr(Path, "unlink", race)
        atomic.write_json(tmp_path / "x.json", 1)
    assert (tmp_path / "thesis").read_text() == "mine" and not (tmp_path / "x.json").exists()


@pytest.mark.parametrize("target", ["thesis", "nothing"])
def test_a_link_with_the_name_of_a_lock_is_not_followed(target: str, tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("mine")
    link = tmp_path / f"a{atomic.NAME}"
    link.symlink_to(target)
    with pytest.raises(UserError, match=mentioning(link)):
        atomic.hold(link, "a run")
    with pytest.raises(UserError, match=mentioning(link)), atomic.wait_for(tmp_path / "a"):
        pass
    assert (tmp_path / "thesis").read_text() == "mine" and {*tmp_path.iterdir()} == {tmp_path / "thesis", link}


def test_a_table_escapes_bars_and_counts_cells() -> None:
    assert tables.markdown(["a", "b"], [["1", "x|y"]]) == "| a | b |\n| --- | --- |\n| 1 | x\\|y |"
    with pytest.raises(ValueError):
        tables.markdown(["a", "b"], [["1"]])


def test_processes_may_write_one_file_at_once(tmp_path: Path) -> None:
    """As two plans do that compile the same step."""
    program = """
import sys
from pathlib import Path
from bertzoo.core import atomic
for number in range(200):
    atomic.write_json(Path(sys.argv[1]), [number] * 1000, shared=True)
"""
    file = tmp_path / "x.json"
    writers = [subprocess.Popen([sys.executable, "-c", program, str(file)]) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert json.loads(file.read_text()) == [199] * 1000 and [*tmp_path.iterdir()] == [file]


KILLED = """
import os, pathlib, sys
from bertzoo.core import atomic
rename, left = pathlib.Path.replace, int(sys.argv[3])
def replace(path, target):
    global left
    if not left: os.kill(os.getpid(), 9)
    left -= 1
    return rename(path, target)
pathlib.Path.replace = replace
exec(sys.argv[1])
os.kill(os.getpid(), 9)
"""
FILES = """
from pathlib import Path
with atomic.new_files(Path(sys.argv[2]), "x.json", "x.files") as temporary:
    (temporary / "x").write_text("model")
    (temporary / "x.json").write_text("{}")
    (temporary / "x.files").mkdir()
"""
REPLACED = FILES.replace('x.files") as', 'x.files", replace=True) as') + '    (temporary / "x.files" / "new").touch()\n'
DIRECTORY = """
from pathlib import Path
with atomic.new_directory(Path(sys.argv[2])) as temporary:
    (temporary / "x").write_text("model")
"""


def run(program: str, file: Path) -> None:
    exec(program, {"atomic": atomic, "sys": type("", (), {"argv": ["", "", str(file)]})})


def killed(program: str, file: Path, renames: int) -> set[str]:
    """Run a program until it is killed after some renames; return the names of its output that then exist."""
    command = [sys.executable, "-c", KILLED, program, str(file), str(renames)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    return {path.name for path in file.parent.glob("x*")}


@pytest.mark.parametrize("renames", range(3))
def test_a_killed_writer_leaves_no_file_without_its_companions(
    renames: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine").write_text("stays")
    assert killed(FILES, tmp_path / "x", renames) == {*["x.json", "x.files"][:renames]}
    if renames:
        with pytest.raises(UserError):
            atomic.check_new_file(tmp_path / "x", "x.json", "x.files")
    run(REPLACED if renames else FILES, tmp_path / "x")
    assert {path.name for path in tmp_path.iterdir()} == {"x", "x.json", "x.files", "mine"}
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # a line for what it removes


def test_a_killed_writer_leaves_no_directory(tmp_path: Path) -> None:
    assert not killed(DIRECTORY, tmp_path / "x", 0) and list(tmp_path.glob(".x.writing"))
    run(DIRECTORY, tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("renames", range(4))
def test_a_replaced_output_is_never_a_mixture(renames: int, tmp_path: Path) -> None:
    old, files = tmp_path / "x.files" / "old", ("x", "x.json")
    old.parent.mkdir()
    for path in (old, *(tmp_path / name for name in files)):
        path.write_text("old")
    left = killed(REPLACED, tmp_path / "x", renames)
    assert left == {"x.json", "x.files"} | ({"x"} if renames == 3 else set())
    assert renames or (tmp_path / "x.json").read_text() == "old"
    run(REPLACED, tmp_path / "x")
    assert {path.name for path in tmp_path.iterdir()} == {"x.files", *files}
    assert "old" not in {(tmp_path / name).read_text() for name in files}
    assert old.read_text() == "old" and (old.parent / "new").exists()  # the write did not create old


@pytest.mark.parametrize("program", [FILES, DIRECTORY, "atomic.write_json(__import__('pathlib').Path(sys.argv[2]), 1)"])
def test_every_file_is_synced_before_it_is_renamed(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure after a rename would otherwise leave empty files under their final names."""
    synced, rename = set(), Path.replace

    def replace(path: Path, target: Path) -> Path:
        files = [file for file in (path, *path.rglob("*")) if file.is_file()]
        assert {file.stat().st_ino for file in files} <= synced
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    monkeypatch.setattr(Path, "replace", replace)
    run(program, tmp_path / "x")
    assert len(synced) == (2 if program == FILES else 1)


def test_a_directory_in_use_is_no_leftover(tmp_path: Path) -> None:
    with atomic.new_directory(tmp_path / "a") as first:
        (first / "x").write_text("1")
        with pytest.raises(UserError, match=mentioning(tmp_path / "a", "in use")):
            atomic.check_new_directory(tmp_path / "a")
        with atomic.new_directory(tmp_path / "b") as second:
            (second / "x").write_text("2")
    assert (tmp_path / "a" / "x").read_text() == "1" and (tmp_path / "b" / "x").read_text() == "2"


def test_a_link_with_the_temporary_name_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "thesis" / "files").mkdir(parents=True)
    (tmp_path / ".x.writing").symlink_to("thesis")
    with pytest.raises(UserError, match=mentioning(tmp_path / ".x.writing")):
        run(DIRECTORY, tmp_path / "x")
    assert (tmp_path / "thesis" / "files").is_dir()


def test_a_repeated_directory_stays_if_its_files_are_the_same(tmp_path: Path) -> None:
    for text, repeat in (("1", False), ("1", True)):
        with atomic.new_directory(tmp_path / "a", repeat) as temporary:
            (temporary / "x").write_text(text)
    with pytest.raises(UserError), atomic.new_directory(tmp_path / "a", True) as temporary:
        (temporary / "x").write_text("2")
    assert (tmp_path / "a" / "x").read_text() == "1" and [path.name for path in tmp_path.iterdir()] == ["a"]
