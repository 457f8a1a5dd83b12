"""Paths in the directory of a pruning run."""

from pathlib import Path
from typing import Literal

MODEL, RECIPE = "model", "pruned.toml"  # the pruned model, and a config that trains it further
TABLE = "latency.json"  # the latency table of a budget in milliseconds
_ITERATIONS = "iterations"


def part(run: Path, iteration: int, name: Literal["weigh", "tune"]) -> Path:
    """Return the directory of the run that trains scores ("weigh") or fine-tunes ("tune") in iteration 1, 2, …"""
    return run / _ITERATIONS / f"{iteration}-{name}"


def cut_file(run: Path, iteration: int) -> Path:
    """Return the path of the JSON record of an iteration's cut."""
    return run / _ITERATIONS / f"{iteration}-cut.json"


def parts(run: Path) -> list[Path]:
    """Return the directories of the runs that have begun, by iteration, "weigh" before "tune"."""
    folders = [path for path in (run / _ITERATIONS).glob("*-*") if path.is_dir()]
    return sorted(folders, key=lambda path: (int(path.name.split("-")[0]), not path.name.endswith("weigh")))


def format_amount(part: float, whole: float) -> str:
    """Format `part` of a model's cost `whole`: as a count if `whole` is an integer, else as milliseconds."""
    return f"{part:,.0f}" if isinstance(whole, int) else f"{part:,.3f}"


def cut_files(run: Path) -> list[Path]:
    """Return the paths of all cut records, by iteration."""
    return sorted((run / _ITERATIONS).glob("*-cut.json"), key=lambda path: int(path.name.split("-")[0]))
