"""Files appear complete or not at all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bertzoo.core import atomic, markdown


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
