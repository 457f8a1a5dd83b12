"""The list of long files holds, and the compile cache stays bounded."""

import os
import re
import resource
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


def test_a_run_beyond_the_budget_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "pace", lambda: tiers.PACE / 2)
    used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    for budget, cold, warm in ((used / 2, True, True), (used, False, True), (2 * used, False, False)):
        monkeypatch.setattr(tiers, "BUDGET", budget)  # a warm run has two thirds of it; a quarter more passes
        assert (tiers.over_budget(False), tiers.over_budget(True)) == (cold, warm)
    monkeypatch.setattr(tiers, "BUDGET", used / 2)
    monkeypatch.setattr(tiers, "pace", lambda: 4 * tiers.PACE)  # a slower machine has as much more
    assert not tiers.over_budget(False)


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
