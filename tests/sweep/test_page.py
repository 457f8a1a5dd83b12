"""docs/sweeps.md: its commands are accepted, its counts are true, and its sweep is one."""

import re
import shlex
from pathlib import Path

import pytest

from bertzoo import cli
from bertzoo.results.layouts import LAYOUTS
from bertzoo.sweep import grid

PAGE = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.replace("\\\n", "").splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_accepted(command: str) -> None:
    verb, args, overrides = cli.parse(shlex.split(command)[1:])
    assert args is not None
    if verb.__name__.endswith("sweep"):
        points = grid.load(args.sweep, overrides, args.tasks).points(args.random)
        assert {point.task for point in points} == set(args.tasks or grid.load(args.sweep).grids)
    else:
        assert args.table in (None, *LAYOUTS)


def test_the_counts_are_true() -> None:
    assert len(COMMANDS) == 8
    assert "552" in PAGE and len(grid.load("squeezebert").points()) == 552
    assert "2,160" in PAGE and len(grid.load("mobilebert").points()) == 2160


def test_its_sweep_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "mine.toml").write_text(text)
    sweep = grid.load(tmp_path / "mine.toml")
    assert [len([p for p in sweep.points() if p.task == task]) for task in ("cola", "rte")] == [4, 6]


def test_every_table_is_named() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert {name for line in lines for name in re.findall(r"`(\w+_\w+|schubert)`", line.split("|")[1])} == set(LAYOUTS)
