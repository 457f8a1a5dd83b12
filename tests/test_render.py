"""benchmarks/lib/tables.py and render.py: rows as a table, and pages that show the result files as they are."""

import json
import sys
from pathlib import Path

import pytest
from messages import mentioning

from benchmarks import __main__, render
from benchmarks.lib import results, tables

ROOT = Path(__file__).parents[1]


def test_cells() -> None:
    rows = [
        {
            "name": "a",
            "ms": 1.5,
            "count": 12345,
            "ratio": tables.spread([1, 2, 4], 2),
            "each": [0.25, 1.0],
            "met": True,
        },
        {"name": "b|c", "ms": 2.25, "count": 1, "ratio": None, "each": [3.0, 2e-6], "met": False},
    ]
    lines = [[cell.strip() for cell in line.split(" | ")] for line in tables.table(rows).splitlines()]
    assert lines[2][1:] == ["1.50", "12,345", "2 (1 to 4)", "0.25, 1.00", "yes |"]
    assert lines[3] == ["| b\\|c", "2.25", "1", "-", "3.00, 2.0e-06", "no |"]


def test_rows_have_the_same_headings() -> None:
    with pytest.raises(ValueError, match=r"'b'.*'a'"):
        tables.table([{"a": 1}, {"b": 1}])


def test_a_missed_target_fails_after_the_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "speed.json"
    monkeypatch.setattr(sys, "argv", ["speed", "--seeds=2"])
    with pytest.raises(SystemExit, match=r"steps.*slow"):
        results.write(out, ["jax 1"], {"steps": [{"model": "slow", "met": False}]})
    page = "# Speed\n<!-- table speed.steps -->\nold\n<!-- end -->\nby hand\n<!-- source speed -->\n<!-- end -->\n"
    text = render.render(page, tmp_path)
    assert "| slow | no |" in text and "old" not in text and "by hand" in text
    assert "`python -m benchmarks speed --seeds=2`; jax 1; " in text and render.render(text, tmp_path) == text
    assert json.loads(out.read_text())["tables"]["steps"] == [{"model": "slow", "met": False}]


def test_commands_leave_out_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--data=glue/SST-2", "--text", "books/a.txt", "--scored=runs/a,runs/b", "--out=x.json", "--seeds=2"]
    monkeypatch.setattr(sys, "argv", ["learning.glue", *words])
    shown = "python -m benchmarks learning.glue --data=SST-2 --text a.txt --scored=a,b --seeds=2"
    assert results.command() == shown
    monkeypatch.setattr(sys, "argv", ["learning.embeddings", "--retrieval", "/far/a/search", "/far/b/search"])
    assert results.command() == "python -m benchmarks learning.embeddings --retrieval a/search b/search"


def test_an_unknown_script_lists_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "fast"])
    with pytest.raises(SystemExit, match=mentioning("fast", "learning.paper_tables", "speed.train_step", "render")):
        __main__.main()


def test_pages_show_the_result_files() -> None:
    """`python -m benchmarks render` has nothing to write, and every result file is shown."""
    shown = set()
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert render.render(text) == text, page
        shown |= {match[3] for match in render.BLOCK.finditer(text) if match[2] == "table"}
    for file in results.DATA.glob("*.json"):
        assert {f"{file.stem}.{name}" for name in render.read(file)[1]} <= shown
