"""What finished fine-tuning runs have measured, read from their `results.json`."""

import json
import math
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk

RESULTS = "results.json"  # written last: a run is finished where it is
VERSION = 1
POINTS = ("accuracy", "f1", "matthews", "pearson", "spearman", "exact", "exact_match")
POINTS += ("best_exact", "best_f1")  # up to 100, as papers print
Scores = Mapping[str, Mapping[str, float]]  # by split and metric, in points


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run. origin: the model that its chain of fine-tunings began with; place: where it was looked for.

    seeds: what each one's chosen epoch scored; median: of each of these scores, over the seeds; each: by seed the score
    by which its epoch was chosen; epochs: these; collapsed: how many seeds say the same of every example.
    """

    path: Path
    place: Path
    task: str
    kind: str
    parameters: int
    origin: str
    config: Mapping[str, Any]
    seeds: Sequence[Scores]
    median: Scores
    each: Sequence[float]
    epochs: Sequence[int]
    collapsed: int

    @property
    def score(self) -> float:
        """The median of the scores by which epochs were chosen."""
        return median(self.each)


def collect(names: Iterable[str]) -> tuple[list[Run], list[str]]:
    """The finished runs in directories, each a run or a tree of runs, in the order of their paths; and of each run that
    is damaged or unfinished one sentence. Raises UserError for a name that is no directory or holds no run at all.
    """
    runs: dict[Path, Run] = {}
    wrong: dict[Path, str] = {}
    for name in names:
        directory = on_disk(name, "the directory", "copy or mount it and name that")
        if not directory.is_dir():
            raise UserError(f"{name} is not a directory; name a fine-tuning run or a directory of runs")
        found = sorted(_find(directory))
        if not found:
            raise UserError(f"{name} holds no fine-tuning run")
        for path in found:
            try:
                runs.setdefault(path.resolve(), read(path, directory if path != directory else path.parent))
            except UserError as error:
                wrong[path.resolve()] = str(error)
    return list(runs.values()), list(wrong.values())


def _find(directory: Path) -> Iterable[Path]:
    for folder, inside, files in os.walk(directory):
        inside.sort()
        if RESULTS in files or _is_begun(Path(folder), files):
            inside.clear()
            yield Path(folder)


def _is_begun(folder: Path, files: Sequence[str]) -> bool:
    """Whether this is the directory of a fine-tuning run that has no results yet."""
    if "config.toml" not in files:
        return False
    try:
        return "task" in tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not a run that anything could be said of
        return False


def read(path: Path, place: Path) -> Run:
    """The run at `path`; raises UserError where it is unfinished or damaged."""
    file = path / RESULTS
    if not file.is_file():
        raise UserError(f"{path} is unfinished: it has no {RESULTS} yet; run the same command again to go on")
    found = _load(file)
    if found.get("version") != VERSION:
        raise UserError(f"{file} is of version {found.get('version')}, of which nothing is known here")
    try:
        seeds = [seed["scores"] for seed in found["seeds"]]
        run = Run(
            path=path,
            place=place,
            task=str(found["task"]),
            kind=str(found["model"]["kind"]),
            parameters=int(found["model"]["parameters"]),
            origin=_origin(path, found),
            config=dict(found["config"]),
            seeds=[_numbers(each) for each in seeds],
            median=_numbers(found["median"]),
            each=[float(seed["score"]) for seed in found["seeds"]],
            epochs=[int(seed["epoch"]) for seed in found["seeds"]],
            collapsed=sum(bool(seed["collapsed"]) for seed in found["seeds"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"says something else than it should ({error})"
        raise UserError(f"{file} is damaged: it {what}") from error
    if not run.seeds:
        raise UserError(f"{file} is damaged: it has no seeds")
    for split, scores in run.median.items():
        for name, value in scores.items():
            each = [seed[split][name] for seed in run.seeds if name in seed.get(split, {})]
            if len(each) < len(run.seeds):
                raise UserError(f"{file} is damaged: a seed has no {name} of {split}, of which there is a median")
            if not math.isclose(value, median(each), rel_tol=1e-9, abs_tol=1e-9):
                other = f"that of its seeds is {median(each):g}"
                raise UserError(f"{file} is damaged: its median of {name} on {split} is {value:g}, {other}")
    if any({k: set(v) for k, v in each.items()} != {k: set(v) for k, v in run.median.items()} for each in run.seeds):
        raise UserError(f"{file} is damaged: its seeds have scores of which there is no median")
    return run


def _load(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is damaged: it cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise UserError(f"{file} is damaged: it is not a table")
    return found


def _numbers(scores: Any) -> Scores:
    found = {split: {name: float(value) for name, value in each.items()} for split, each in scores.items()}
    for each in found.values():
        for name, value in each.items():
            if not math.isfinite(value) or (name in POINTS and abs(value) > 100):
                raise ValueError(f"{name} is {value}")
    return found


def _origin(path: Path, found: Mapping[str, Any], depth: int = 8) -> str:
    """What the run's model came from; where that was a fine-tuning run itself, what that one came from."""
    facts = path / "run.json"
    source = str(found["from"])
    if facts.is_file():
        source = str(_load(facts).get("from", {}).get("path", source))
    for folder in (Path(source), *list(Path(source).parents)[:2]):  # the run, its model/ or seed-0/model
        if depth and (folder / RESULTS).is_file() and folder.resolve() != path.resolve():
            return _origin(folder, _load(folder / RESULTS), depth - 1)
    return _short(source)


def _short(path: str) -> str:
    """The path as one types it here."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
