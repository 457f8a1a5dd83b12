"""Where things are in the directory of a pruning run."""

from pathlib import Path

MODEL, RECIPE = "model", "pruned.toml"  # the result, and the config that trains it on
TABLE = "latency.json"  # what a budget in milliseconds was counted with
_ITERATIONS = "iterations"


def part(run: Path, iteration: int, what: str) -> Path:
    """The run that weighs ("weigh") or fine-tunes ("tune") in an iteration, counted from 1."""
    return run / _ITERATIONS / f"{iteration}-{what}"


def cut(run: Path, iteration: int) -> Path:
    """What an iteration cut."""
    return run / _ITERATIONS / f"{iteration}-cut.json"


def parts(run: Path) -> list[Path]:
    """The runs that have begun, in their order."""
    found = [path for path in (run / _ITERATIONS).glob("*-*") if path.is_dir()]
    return sorted(found, key=lambda path: (int(path.name.split("-")[0]), not path.name.endswith("weigh")))


def shown(amount: float, whole: float) -> str:
    """What of a budget is there, for a person: counts, as `whole` is where it is an integer, or milliseconds."""
    return f"{amount:,.0f}" if isinstance(whole, int) else f"{amount:,.3f}"


def cuts(run: Path) -> list[Path]:
    """What has been cut, in the order of the iterations."""
    return sorted((run / _ITERATIONS).glob("*-cut.json"), key=lambda path: int(path.name.split("-")[0]))
