"""docs/sweeps.md and docs/finetune.md: their commands are accepted, its counts are true, and its sweep is one."""

import re
import shlex
from pathlib import Path

import pytest

from bertzoo import cli
from bertzoo.config import load
from bertzoo.finetune.settings import Finetune
from bertzoo.results.layouts import LAYOUTS
from bertzoo.sweep import chain as chains
from bertzoo.sweep import grid

PAGE = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.replace("\\\n", "").splitlines()]
FINE_TUNING = (Path(__file__).parents[2] / "docs" / "finetune.md").read_text(encoding="utf-8")
OTHERS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", FINE_TUNING, re.DOTALL)
    for line in block.replace("\\\n", "").splitlines()
]
CHAIN = "--model.student=a --model.teacher=b --data_dir=glue --run_dir=runs/glue"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_accepted(command: str) -> None:
    verb, args, overrides = cli.parse(shlex.split(command)[1:])
    assert args is not None
    if verb.__name__.endswith("sweep"):
        points = grid.load(args.sweep, overrides, args.tasks).points(args.random)
        assert {point.task for point in points} == set(args.tasks or grid.load(args.sweep).grids)
    else:
        assert args.table in (None, *LAYOUTS)


@pytest.mark.parametrize("command", OTHERS)
def test_every_command_of_fine_tuning_is_accepted(command: str) -> None:
    command = command.partition(" # ")[0].replace(" … ", f" {CHAIN} ").partition(" < ")[0]
    verb, args, overrides = cli.parse(shlex.split(command)[1:])
    assert args is not None
    name = verb.__name__.rpartition(".")[2]
    if name == "finetune":
        assert load(Finetune, args.files, overrides)
    elif name == "chain":
        paths = dict(pair for pair in overrides if pair[0].startswith("model."))
        chain = chains.load(args.chain, [pair for pair in overrides if pair[0] not in paths]).only(args.tasks)
        assert {f"model.{name}" for name in chain.models} == set(paths)


def test_the_counts_are_true() -> None:
    assert len(COMMANDS) == 9
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
