"""Read a sweep from TOML: a grid of options; its combinations, all, at random or by a study, are jobs (points).

KEYS describes the file's keys.
"""

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bertzoo.core import config
from bertzoo.core.documents import DocumentError, fitting, show
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.kinds import kind_of_files
from bertzoo.jobs.job import TRAINING, CommandJob, JobList, alpha_is_one

if TYPE_CHECKING:
    from bertzoo.jobs.search import Study

FOLDER = "sweeps"  # folder of sweeps in the shipped configs
KEYS = {
    "sweep.base": "name or file of the config of every run, such as finetune, prune_66m or demo; required",
    "sweep.tasks": "list of tasks; required for fine-tunings, not allowed for other runs",
    "options.OPTION": "value of an option of `bertzoo finetune`, or of the base's command, for all runs",
    "grid.OPTION": "list of an option's values; the sweep has a run for every combination",
    "range.OPTION": 'for --trials: [LOW, HIGH], or [LOW, HIGH, "log"] to draw the logarithm uniformly',
    "tasks.NAME.OPTION": "list of an option's values for one task; it replaces the list in [grid], if any",
}
RESERVED = ("task", "run_dir")  # options that a sweep sets itself
_FORM = {
    "sweep": {"base": str, "tasks?": [str]},
    "options?": dict,
    "grid?": dict,
    "range?": dict,
    "tasks?": {str: dict},
}
Grids = dict[str, dict[str, Any]]  # by task, the values of each option, as texts, or their range


@dataclass(frozen=True)
class ValueRange:
    """The numbers, whole if both ends are, from which a study draws an option's value; log: by their logarithm."""

    low: float
    high: float
    log: bool


def load_sweep(
    name: str | Path,
    overrides: Sequence[tuple[str, str]] = (),
    tasks: Sequence[str] = (),
    random: int = 0,
    seed: int | None = None,
    study: "Study | None" = None,
) -> JobList:
    """Return the runs of a sweep in a file or with a shipped name, task by task; the last option of a grid changes
    fastest. Raises ConfigError for a wrong file or task.

    overrides: (key, value) pairs. The key OPTION sets an option of all runs, tasks.NAME.OPTION of one task's runs. The
    value replaces the option's list in the grid. tasks: the tasks to keep; empty: all.
    random: number of runs to draw for each task, by `seed`; 0: all. A larger `random` draws the same runs and more.
    seed: 0 if None. study: draws the points instead. Raises UserError for a seed without `random`.
    """
    if seed is not None and not random and study is None:
        raise UserError(
            f"--random_seed={seed} applies only to --random and --trials. Add --random=N, a number of points."
        )
    path = config.find(name, FOLDER)
    try:
        base, options, grids = _read(path)
    except (ConfigError, DocumentError) as error:
        raise ConfigError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error
    options = _override(options, grids, overrides)
    for task in tasks:
        if task not in grids:
            raise ConfigError(f"--tasks={task} is not a task of the sweep{config.nearest(task, grids)}")
    points = []
    for task in (task for task in grids if not tasks or task in tasks):
        grid = grids[task]
        if study is not None:
            points += study.draw(task, grid, partial(_point, task, base, options))
            continue
        if ranges := [key for key, values in grid.items() if isinstance(values, ValueRange)]:
            raise ConfigError(f"{path}: [range] has {ranges[0]}, whose value only a study draws. Add --trials=N.")
        combinations = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        of_task = [_point(task, base, options, settings) for settings in combinations]
        drawn = {point.name for point in sorted(of_task, key=lambda point: _digest(seed or 0, point.name))[:random]}
        points += [point for point in of_task if not random or point.name in drawn]
    digest = hashlib.sha256(config.find(base).read_bytes()).hexdigest()
    identity = {"base": base, "base_sha256": digest, "options": options}
    return JobList(kind="sweep", path=path, jobs=tuple(points), identity=identity, inputs={"base": base})


def _point(task: str, base: str, options: Mapping[str, str], settings: Mapping[str, str]) -> CommandJob:
    """Return a run, whose name depends only on the task and the settings, not on the rest of the grid."""
    options = {**{key: value for key, value in options.items() if key not in settings}, **settings}
    if alpha_is_one(options):
        options.pop("teacher", None)
    return CommandJob(
        name=f"{task}/{_digest(task, settings)[:12]}",
        stage="points",
        verb=task if task in TRAINING else "finetune",
        task=task,
        config=(base,),
        options=options,
        files=tuple(key for key in ("from", "teacher", "data_dir", "data.source") if options.get(key)),
        settings=settings,
    )


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> tuple[str, dict[str, str], Grids]:
    """Return the name of the base config, the options that all runs have in common, and the grid of each task."""
    table = config.read_toml(path)
    check_keys("table ", table, list(dict.fromkeys(key.split(".")[0] for key in KEYS)))
    fitting(table, _FORM)
    check_keys("key sweep.", table["sweep"], ("base", "tasks"))
    base, tasks = table["sweep"]["base"], table["sweep"].get("tasks", [])
    if (kind := kind_of_files(base).name) in TRAINING and not (kind == "pretrain" and tasks):  # old fine-tunings
        if tasks:
            raise ConfigError(
                f"sweep.tasks = {tasks}, but {base} configures a {kind}, which has no tasks. Remove sweep.tasks."
            )
        tasks = [kind]  # the command stands for a task
    if not tasks or len(set(tasks)) < len(tasks):
        raise ConfigError(
            f'sweep.tasks = {tasks} is empty or names a task twice. Write a list such as ["cola", "rte"].'
        )
    options = to_options("options", table.get("options", {}), RESERVED)
    grid = _lists("grid", table.get("grid", {}))
    ranges = {key: _range(f"range.{key}", values) for key, values in config.leaves(table.get("range", {}), "")}
    if twice := sorted(options.keys() & grid.keys() | (options.keys() | grid.keys()) & ranges.keys()):
        raise ConfigError(f"{twice[0]} is in two of [options], [grid] and [range]. Keep one.")
    grid |= ranges
    grids = {task: dict(grid) for task in tasks}
    for task, lists in table.get("tasks", {}).items():
        if task not in tasks:
            raise ConfigError(f"[tasks.{task}] does not name a task in sweep.tasks{config.nearest(task, tasks)}")
        grids[task] |= _lists(f"tasks.{task}", lists)
    return base, options, grids


def _lists(where: str, table: Mapping[str, Any]) -> dict[str, Any]:
    lists: dict[str, Any] = {}
    for key, values in config.leaves(table, ""):
        check_settable(f"{where}.{key}", key, RESERVED)
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{where}.{key} = {show(values)} is not a list of values. Write a list such as [1, 2].")
        lists[key] = tuple(text for _, text in config.as_options({str(i): value for i, value in enumerate(values)}))
        if len(set(lists[key])) < len(values):
            raise ConfigError(f"{where}.{key} = {values} has a value twice. Remove one.")
    return lists


def _range(where: str, values: Any) -> ValueRange:
    check_settable(where, where.partition(".")[2], RESERVED)
    form = (float, float, Literal["log"]) if len(fitting(values, list, where)) > 2 else (float, float)
    low, high, *log = fitting(values, form, where)
    if not -math.inf < low < high < math.inf or (log and low <= 0):
        raise ConfigError(
            f'{where} = {values} is no range. Write finite numbers [LOW, HIGH], or [LOW, HIGH, "log"] above 0.'
        )
    return ValueRange(low, high, bool(log))


def _override(options: Mapping[str, str], grids: Grids, overrides: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the common options with `overrides`; also update the grids."""
    options = dict(options)
    for key, value in sorted(overrides, key=lambda pair: pair[0].startswith("tasks.")):  # a task's overrides last
        if not key.startswith("tasks."):
            check_settable(f"--{key}", key, RESERVED)
            options[key] = value
            for grid in grids.values():
                grid |= {key: (value,)} if key in grid else {}
            continue
        _, task, name = (*key.split(".", 2), "")[:3]
        if task not in grids or not name:
            raise ConfigError(
                f"--{key} is not --tasks.NAME.KEY with the NAME of a task. The tasks are {', '.join(grids)}."
            )
        check_settable(f"--{key}", name, RESERVED)
        grids[task][name] = (value,)
    return {name: value for name, value in options.items() if not all(name in grid for grid in grids.values())}


def check_keys(where: str, table: Iterable[str], allowed: Collection[str]) -> None:
    """Raise ConfigError, naming `where`, for a key of `table` that is not in `allowed`."""
    for key in table:
        if key not in allowed:
            raise ConfigError(f"unknown {where}{key}{config.nearest(key, allowed)}")


def check_settable(where: str, key: str, reserved: Collection[str]) -> None:
    """Raise ConfigError, naming `where`, if `key` is in `reserved`: options that bertzoo itself sets for every job."""
    if key in reserved:
        raise ConfigError(f"{where} sets {key}, which bertzoo sets itself for every run. Remove this option.")


def to_options(where: str, table: Mapping[str, Any], reserved: Collection[str]) -> dict[str, str]:
    """Return the values in nested tables as texts, by dotted key; raises ConfigError for one in `reserved`."""
    options = dict(config.as_options(dict(config.leaves(table, ""))))
    for key in options:
        check_settable(f"{where}.{key}", key, reserved)
    return options
