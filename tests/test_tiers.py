"""The lists of tests by name hold, slices cover everything once, and the compile cache stays bounded."""

import os
import re
import time
from pathlib import Path

from tiers import EVERY_LANDING, LONG_FILES, STALE, prepare_cache, slice_of, stale_entries

ROOT = Path(__file__).parents[1]


def test_every_listed_file_and_test_exists() -> None:
    assert all((ROOT / file).is_file() for file in LONG_FILES)
    for entry in EVERY_LANDING:
        file, _, test = entry.partition("::")
        name = test.partition("[")[0]
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), entry


def test_a_renamed_case_is_noticed() -> None:
    assert stale_entries([]) == stale_entries(EVERY_LANDING) == []
    renamed, *others = EVERY_LANDING
    assert stale_entries([renamed + "9", *others]) == []  # a prefix stands for all its cases
    assert stale_entries([renamed.replace("bert-0", "bert-9"), *others]) == [renamed]


def test_every_file_is_in_one_slice() -> None:
    files = [str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py")]
    found = [slice_of(f"{file}::test_x[a]", 5) for file in files]
    assert set(found) == set(range(5)) and found == [slice_of(f"{file}::test_y", 5) for file in files]


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
