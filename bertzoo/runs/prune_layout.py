"""Paths in the directory of a pruning run."""

from pathlib import Path
from typing import Literal

MODEL, RECIPE = "model", "pruned.toml"  # the pruned model, and a config that trains it further
TABLE = "latency.json"  # the latency table of a budget in milliseconds
_ITERATIONS = "iterations"


def part(run: Path, iteration: int, name: Literal["weigh", "tune"]) -> Path:
    """The run that trains the scores ("weigh") or fine-tunes ("tune") in an iteration, counted from 1."""
    return run / _ITERATIONS / f"{iteration}-{name}"


def cut_file(run: Path, iteration: int) -> Path:
    """The JSON record of an iteration's cut."""
    return run / _ITERATIONS / f"{iteration}-cut.json"


def parts(run: Path) -> list[Path]:
    """The runs that have begun, in order."""
    folders = [path for path in (run / _ITERATIONS).glob("*-*") if path.is_dir()]
    return sorted(folders, key=lambda path: (int(path.name.split("-")[0]), not path.name.endswith("weigh")))


def format_amount(part: float, whole: float) -> str:
    """Format part of a budget: a count if `whole` is an integer, else milliseconds."""
    return f"{part:,.0f}" if isinstance(whole, int) else f"{part:,.3f}"


def cut_files(run: Path) -> list[Path]:
    """The JSON files of all cuts, in the order of the iterations."""
    return sorted((run / _ITERATIONS).glob("*-cut.json"), key=lambda path: int(path.name.split("-")[0]))
