"""Files appear complete or not at all."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bertzoo.core import atomic, markdown
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


def test_a_table_escapes_bars_and_counts_cells() -> None:
    assert markdown.table(["a", "b"], [["1", "x|y"]]) == "| a | b |\n| --- | --- |\n| 1 | x\\|y |"
    with pytest.raises(ValueError):
        markdown.table(["a", "b"], [["1"]])


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


# new_files renames its list of names and then three files, new_directory one directory.
@pytest.mark.parametrize(("program", "renames"), [*((FILES, n) for n in range(4)), (DIRECTORY, 0)])
def test_a_killed_writer_leaves_nothing_to_the_next(program: str, renames: int, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("stays")
    command = [sys.executable, "-c", KILLED, program, str(tmp_path / "x"), str(renames)]
    assert subprocess.run(command).returncode == -signal.SIGKILL and list(tmp_path.glob(".bertzoo.*"))
    exec(program, {"atomic": atomic, "sys": type("", (), {"argv": ["", "", str(tmp_path / "x")]})})
    written = {"x", "x.json", "x.files"} if program == FILES else {"x"}
    assert {path.name for path in tmp_path.iterdir()} == written | {"mine"}


@pytest.mark.parametrize("renames", range(4))
def test_a_killed_writer_replaces_all_files_or_none(renames: int, tmp_path: Path) -> None:
    old, files = tmp_path / "x.files" / "old", ("x", "x.json")
    old.parent.mkdir()
    for path in (old, *(tmp_path / name for name in files)):
        path.write_text("old")
    command = [sys.executable, "-c", KILLED, REPLACED, str(tmp_path / "x"), str(renames)]
    assert subprocess.run(command).returncode == -signal.SIGKILL and list(tmp_path.glob(".bertzoo.*"))
    atomic.remove_leftovers(tmp_path / "x")
    assert {path.name for path in tmp_path.iterdir()} == {"x.files", *files}
    assert {(tmp_path / name).read_text() == "old" for name in files} == {old.exists()} == {renames == 0}
    assert (old.parent / "new").exists() == (renames > 0)


def test_files_that_were_placed_stay_if_the_writer_is_killed_after_them(tmp_path: Path) -> None:
    program = FILES + "    import shutil; shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), 9)"
    command = [sys.executable, "-c", KILLED, program, str(tmp_path / "x"), "9"]
    assert subprocess.run(command).returncode == -signal.SIGKILL and list(tmp_path.glob(".bertzoo.*"))
    with pytest.raises(UserError):
        atomic.check_new_file(tmp_path / "x", "x.json", "x.files")
    assert {path.name for path in tmp_path.iterdir()} == {"x", "x.json", "x.files"}


def test_a_directory_in_use_is_no_leftover(tmp_path: Path) -> None:
    with atomic.new_directory(tmp_path / "a") as first:
        (first / "x").write_text("1")
        with atomic.new_directory(tmp_path / "b") as second:
            (second / "x").write_text("2")
    assert (tmp_path / "a" / "x").read_text() == "1" and (tmp_path / "b" / "x").read_text() == "2"


def test_a_repeated_directory_stays_if_its_files_are_the_same(tmp_path: Path) -> None:
    for text, repeat in (("1", False), ("1", True)):
        with atomic.new_directory(tmp_path / "a", repeat) as temporary:
            (temporary / "x").write_text(text)
    with pytest.raises(UserError), atomic.new_directory(tmp_path / "a", True) as temporary:
        (temporary / "x").write_text("2")
    assert (tmp_path / "a" / "x").read_text() == "1" and [path.name for path in tmp_path.iterdir()] == ["a"]
