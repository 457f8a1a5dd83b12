"""The kind "prune": training runs and cuts in turn, and the pruned model at the end; the paths in a run's directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from bertzoo.core.kinds import Kind, register

MODEL, RECIPE = "model", "pruned.toml"  # the pruned model, and a config that trains it further
TABLE = "latency.json"  # latencies of encoders; only with a budget in milliseconds
_ITERATIONS = "iterations"
# The letters of schuBERT's paper (Table 2), and e for an embedding whose width is not that of the layers.
LETTERS = {
    "h": "width of the layers",
    "e": "width of the embedding",
    "f": "feed-forward size",
    "a": "heads",
    "k": "size of a head's keys",
    "v": "size of a head's values",
}


def inner_path(run: Path, iteration: int, name: Literal["weigh", "tune"]) -> Path:
    """Return the directory of a training run inside the pruning run `run`, in iteration 1, 2, …

    "weigh" trains the scores of the elements; "tune" trains the model after the cut.
    """
    return run / _ITERATIONS / f"{iteration}-{name}"


def cut_file(run: Path, iteration: int) -> Path:
    """Return the path of the JSON file that records what an iteration cuts from the model."""
    return run / _ITERATIONS / f"{iteration}-cut.json"


def inner_paths(run: Path) -> list[Path]:
    """Return the directories of the training runs that a pruning run has begun.

    They are sorted by iteration; in each iteration, "weigh" precedes "tune" (see `inner_path`).
    """
    folders = [path for path in (run / _ITERATIONS).glob("*-*") if path.is_dir()]
    return sorted(folders, key=lambda path: (int(path.name.split("-")[0]), not path.name.endswith("weigh")))


def format_amount(cost: float, whole: float) -> str:
    """Format a cost: as a count if the whole model's cost `whole` is an integer, else in milliseconds."""
    return f"{cost:,.0f}" if isinstance(whole, int) else f"{cost:,.3f}"


def format_sizes(sizes: Mapping[str, int], letter: str) -> str:
    """Format the sizes, by name, of the dimensions with a letter (`LETTERS`), as "20" or "16 to 20"."""
    values = {size for name, size in sizes.items() if name.rpartition("/")[2] == letter}
    return str(*values) if len(values) == 1 else f"{min(values)} to {max(values)}"


def cut_files(run: Path) -> list[Path]:
    """Return the paths of all existing cut records (see `cut_file`), sorted by iteration."""
    return sorted((run / _ITERATIONS).glob("*-cut.json"), key=lambda path: int(path.name.split("-")[0]))


PRUNE = register(
    Kind(
        name="prune",
        config_at="bertzoo.pruning.settings:Prune",
        report_at="bertzoo.pruning.report:write_report",
        key="weigh",
        model=lambda read: MODEL,
        training_runs=inner_paths,
        folders=(_ITERATIONS,),
    )
)
