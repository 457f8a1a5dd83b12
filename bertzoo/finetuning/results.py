"""Read the scores of finished fine-tuning runs from their `results.json`, and print them as one table."""

import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertzoo.core import tables
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import CONFIG, kind_of_run
from bertzoo.core.paths import on_disk
from bertzoo.finetuning.kind import FINETUNE, RESULTS
from bertzoo.tasks.metrics import is_threshold

OWN = "own"  # the task of the user's own files
_ADVICE = "Run the same bertzoo finetune again."
Scores = Mapping[str, Mapping[str, float]]  # by split and metric, in points
_RESULTS = {
    "version": Literal[1],
    "task": str,
    "model": {"kind": str, "parameters": int},
    "from": str,
    "config": dict,
    "seeds": [{"scores": {str: {str: float}}, "score": float, "epoch": int, "collapsed": bool}],
}


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A finished fine-tuning run. It saved, for each seed, the model of one epoch: the chosen epoch.

    folder: the directory that holds the run. kind: the `kind` in the model's config, such as "bert". origin: the first
    model in the chain of fine-tunings that led to this run.
    seeds, chosen_scores, epochs: of each seed's chosen epoch, all scores, `score` and the number.
    collapsed: number of seeds whose saved model predicts the same for every example.
    """

    path: Path
    folder: Path
    task: str
    kind: str
    parameters: int
    origin: str
    config: Mapping[str, Any]
    seeds: Sequence[Scores]
    chosen_scores: Sequence[float]
    epochs: Sequence[int]
    collapsed: int

    @property
    def source(self) -> str:
        """The row's directory and first model, as text."""
        return f"{self.path if self.task == OWN else self.folder}, from {self.origin}"

    @property
    def score(self) -> float:
        """The median of `chosen_scores`."""
        return statistics.median(self.chosen_scores)

    @property
    def median(self) -> Scores:
        """The median of every score over the seeds."""
        return {
            split: {name: statistics.median(seed[split][name] for seed in self.seeds) for name in named}
            for split, named in self.seeds[0].items()
        }


def collect_runs(names: Iterable[str]) -> tuple[list[FinishedRun], list[str]]:
    """Return the finished runs in directories, and an error message for each unfinished or damaged run.

    names: directories of runs, or directories that contain them. Raises UserError for a name that is not a directory or
    holds no run.
    """
    runs: dict[Path, FinishedRun] = {}
    errors: dict[Path, str] = {}
    for name in names:
        directory = on_disk(name, "the directory", "Copy it to this machine and name the copy.")
        if not directory.is_dir():
            raise UserError(f"{name} is not a directory. Name a fine-tuning run or a directory of runs.")
        paths = sorted(_find_runs(directory))
        if not paths:
            raise UserError(f"{name} holds no fine-tuning run. Name a directory that `bertzoo finetune` wrote.")
        for path in paths:
            try:
                runs.setdefault(path.resolve(), read_run(path, directory if path != directory else path.parent))
            except UserError as error:
                errors[path.resolve()] = str(error)
    return list(runs.values()), list(errors.values())


def _find_runs(directory: Path) -> Iterable[Path]:
    for folder, inside, files in os.walk(directory):
        inside.sort()
        is_run = RESULTS in files
        with suppress(UserError):  # not a config of bertzoo
            is_run = is_run or (CONFIG in files and kind_of_run(Path(folder)) is FINETUNE)
        if is_run:
            inside.clear()
            yield Path(folder)


def read_run(path: Path, folder: Path) -> FinishedRun:
    """Read the run at `path`; raises UserError if it is unfinished or damaged. folder: as in FinishedRun."""
    file = path / RESULTS
    if not file.is_file():
        raise UserError(f"{path} is unfinished: it has no {RESULTS} yet. Run the same command again to resume it.")
    results = read_json(file, _RESULTS, _ADVICE)
    return FinishedRun(
        path=path,
        folder=folder,
        task=results["task"],
        kind=results["model"]["kind"],
        parameters=results["model"]["parameters"],
        origin=_origin(path, results["from"]),
        config=results["config"],
        seeds=[seed["scores"] for seed in results["seeds"]],
        chosen_scores=[float(seed["score"]) for seed in results["seeds"]],
        epochs=[seed["epoch"] for seed in results["seeds"]],
        collapsed=sum(seed["collapsed"] for seed in results["seeds"]),
    )


def _origin(path: Path, source: str, depth: int = 8) -> str:
    """Return the model that a run started from, traced back through at most `depth` earlier fine-tuning runs.

    path: the run. source: the model named in the run's results.json; a model named in the run's run.json replaces it.
    """
    if (record := path / "run.json").is_file():
        source = read_json(record, {"from?": {"path?": str}}, _ADVICE).get("from", {}).get("path", source)
    for folder in (Path(source), *list(Path(source).parents)[:2]):  # source is the run, its model/ or seed-0/model
        if depth and (folder / RESULTS).is_file() and folder.resolve() != path.resolve():
            return _origin(folder, read_json(folder / RESULTS, {"from": str}, _ADVICE)["from"], depth - 1)
    return str(Path(source).relative_to(Path.cwd())) if Path(source).is_relative_to(Path.cwd()) else source


class Cell(NamedTuple):
    """A score in points: the median over `seeds` seeds, with the lowest and the highest value."""

    value: float
    low: float
    high: float
    seeds: int

    @property
    def text(self) -> str:
        spread = f" ({self.low:.1f}–{self.high:.1f})" if self.seeds > 1 else ""
        return f"{self.value:.1f}{spread}"


class ResultRow(NamedTuple):
    """Scores of one model, by task, split and metric. source: its runs' directory and the model they start from."""

    model: str
    source: str
    parameters_m: str
    cells: Mapping[str, Cell]


def best_runs(runs: Iterable[FinishedRun]) -> tuple[list[dict[str, FinishedRun]], list[str]]:
    """Return the best run of each task, {task: run}, for every group of runs, and notes on their scores."""
    groups: dict[tuple[Path, str, str], dict[str, list[FinishedRun]]] = {}
    for run in runs:
        folder = run.path if run.task == OWN else run.folder  # each run of the task `own` is a row
        key = folder.resolve(), run.kind, run.origin
        groups.setdefault(key, {}).setdefault(run.task, []).append(run)
    best = [{task: max(several, key=lambda run: run.score) for task, several in g.items()} for g in groups.values()]
    notes = []
    for chosen, group in zip(best, groups.values(), strict=True):
        for task, run in chosen.items():
            if (count := len(group[task])) > 1:
                notes.append(f"{task}: {run.path} has the best score of {count} runs")
            if run.collapsed:
                same = f"{run.collapsed} of {len(run.seeds)} seeds"
                notes.append(f"{task}: {same} predict the same for every example ({run.path})")
            if rows := run.config.get("train_rows"):
                notes.append(f"{task}: trained on only {rows:,} examples ({run.path})")
    return best, notes


def build_rows(groups: Iterable[Mapping[str, FinishedRun]]) -> list[ResultRow]:
    """Return a row for each group of runs, by task."""
    rows = []
    for group in groups:
        cells = {}
        for task, run in group.items():
            for split, named in run.median.items():
                for metric, median in named.items():
                    if not is_threshold(metric):
                        values = [seed[split][metric] for seed in run.seeds]
                        cells[f"{task} {split} {metric}"] = Cell(median, min(values), max(values), len(values))
        first = next(iter(group.values()))
        rows.append(ResultRow(first.kind, first.source, f"{first.parameters / 1e6:.1f}", cells))
    return rows


def as_markdown(rows: Sequence[ResultRow], notes: Sequence[str]) -> str:
    """Format rows as a Markdown table with a legend and notes."""
    names = columns(rows)
    table = tables.markdown(
        ["model", "runs", "parameters (M)", *names],
        ([*row[:3], *(row.cells[name].text if name in row.cells else "" for name in names)] for row in rows),
    )
    legend = "Scores in points: the median over seeds, with the lowest and the highest value."
    return "\n\n".join([table, "\n".join(f"- {line}" for line in [legend, *notes])])


def as_json(rows: Sequence[ResultRow], notes: Sequence[str]) -> str:
    cells = [{name: {**cell._asdict(), "text": cell.text} for name, cell in row.cells.items()} for row in rows]
    documents = [{**row._asdict(), "cells": row_cells} for row, row_cells in zip(rows, cells, strict=True)]
    whole = {"columns": columns(rows), "rows": documents, "notes": list(notes)}
    return json.dumps(whole, indent=2, ensure_ascii=False)


def columns(rows: Iterable[ResultRow]) -> list[str]:
    """Return the names of all rows' cells, each once."""
    return list(dict.fromkeys(name for row in rows for name in row.cells))
