"""The list of long files holds, and the compile cache stays bounded."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiers
from tiers import LONG_FILES, STALE, prepare_cache

ROOT = Path(__file__).parents[1]


def test_every_listed_file_exists() -> None:
    assert all((ROOT / file).is_file() for file in LONG_FILES)


@pytest.mark.slow  # starts pytest
def test_only_listed_files_run(tmp_path: Path) -> None:
    (tmp_path / "listed").write_text("tests/docs/test_readme.py\n")
    command = ["-m", "pytest", "-n", "0", "-q", "--collect-only", f"--files={tmp_path / 'listed'}"]
    words = ["tests/test_lock.py", "tests/docs"]  # a file and a folder
    done = subprocess.run([sys.executable, *command, *words], cwd=ROOT, capture_output=True, text=True)
    assert set(re.findall(r"^(tests/\S+)::", done.stdout, re.MULTILINE)) == {"tests/docs/test_readme.py"}


def test_a_run_beyond_the_budget_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "BUDGET", 2)
    for number in range(2):
        (tmp_path / f"{number}-cache").touch()
    assert not tiers.over_budget(tmp_path)
    (tmp_path / "2-cache").touch()
    assert tiers.over_budget(tmp_path)


def test_the_cache_loses_old_folders_and_its_oldest_programs(tmp_path: Path) -> None:
    for name in ("mine", "other", "old"):
        (tmp_path / name).mkdir()
    for age, name in enumerate(("new", "middle", "oldest")):
        (tmp_path / "mine" / name).write_bytes(b"x" * 40)
        os.utime(tmp_path / "mine" / name, (0, time.time() - age))
    os.utime(tmp_path / "old", (0, time.time() - STALE - 60))
    assert prepare_cache(tmp_path, "mine", limit=100) == tmp_path / "mine"
    assert {file.name for file in tmp_path.iterdir()} == {"mine", "other"}
    assert {file.name for file in (tmp_path / "mine").iterdir()} == {"new", "middle"}
    assert prepare_cache(tmp_path / "nowhere", "mine", limit=100) == tmp_path / "nowhere" / "mine"
