"""Read a sweep from TOML: a grid of options, whose combinations, all or at random, are its jobs (points).

KEYS describes the file's keys.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from bertzoo.core import config, schema
from bertzoo.core.documents import DocumentError, fitting
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.kinds import kind_of_files
from bertzoo.jobs.job import CommandJob, JobList, alpha_is_one

FOLDER = "sweeps"  # folder of sweeps in the shipped configs
KEYS = {
    "sweep.base": "name or file of the config of every run, such as finetune or prune_66m; required",
    "sweep.tasks": "list of tasks; required for fine-tunings, not allowed for prunings",
    "options.OPTION": "value of an option of `bertzoo finetune` or `bertzoo prune` for all runs",
    "grid.OPTION": "list of an option's values; the sweep has a run for every combination",
    "tasks.NAME.OPTION": "list of an option's values for one task; it replaces the list in [grid], if any",
}
PRUNE = "prune"  # the command of a pruning's points, and what stands in place of their task
OWN = ("task", "run_dir")  # options that a sweep sets itself
_FILES = ("from", "teacher", "data_dir", "data.source")  # options that name files
_FORM = {"sweep": {"base": str, "tasks?": [str]}, "options?": dict, "grid?": dict, "tasks?": {str: dict}}
Grids = dict[str, dict[str, tuple[str, ...]]]  # by task, the values of each option


def load_sweep(
    name: str | Path,
    overrides: Sequence[tuple[str, str]] = (),
    tasks: Sequence[str] = (),
    random: int = 0,
    seed: int | None = None,
) -> JobList:
    """Return the runs of a sweep in a file or with a shipped name, task by task; the last option of a grid changes
    fastest. Raises ConfigError for a wrong file or task.

    overrides: (key, value) pairs. The key OPTION sets an option of all runs, tasks.NAME.OPTION of one task's runs. The
    value replaces the option's list in the grid. tasks: the tasks to keep; empty: all.
    random: number of runs to draw for each task, by `seed`; 0: all. If `random` grows, the runs that were drawn before
    are drawn again. seed: 0 if None. Raises UserError for a seed without `random`.
    """
    if seed is not None and not random:
        raise UserError(f"--random_seed={seed} applies only to --random. Add --random=N, the number of points.")
    path = config.find(name, FOLDER)
    try:
        base, options, grids = _read(path)
    except (ConfigError, DocumentError) as error:
        raise ConfigError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error
    options = _override(options, grids, overrides)
    for task in tasks:
        if task not in grids:
            raise ConfigError(f"--tasks={task} is not a task of the sweep{schema.nearest(task, grids)}")
    points = []
    for task in (task for task in grids if not tasks or task in tasks):
        grid = grids[task]
        rows = [dict(zip(grid, row, strict=True)) for row in product(*grid.values())]
        of_task = [_point(task, base, options, row) for row in rows]
        drawn = {point.name for point in sorted(of_task, key=lambda point: _digest(seed or 0, point.name))[:random]}
        points += [point for point in of_task if not random or point.name in drawn]
    digest = hashlib.sha256(config.find(base).read_bytes()).hexdigest()
    identity = {"base": base, "base_sha256": digest, "options": options}
    return JobList(kind="sweep", path=path, jobs=tuple(points), identity=identity)


def _point(task: str, base: str, options: Mapping[str, str], settings: Mapping[str, str]) -> CommandJob:
    """Return a run, whose name depends only on the task and the settings, not on the rest of the grid."""
    options = {**{key: value for key, value in options.items() if key not in settings}, **settings}
    if alpha_is_one(options):
        options.pop("teacher", None)
    return CommandJob(
        name=f"{task}/{_digest(task, settings)[:12]}",
        stage="points",
        verb=PRUNE if task == PRUNE else "finetune",
        task=task,
        config=(base,),
        options=options,
        files=tuple(key for key in _FILES if options.get(key)),
        settings=settings,
    )


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> tuple[str, dict[str, str], Grids]:
    """Return the name of the base config, the options that all runs have in common, and the grid of each task."""
    table = config.read_toml(path)
    check_keys("table ", table, list(dict.fromkeys(key.split(".")[0] for key in KEYS)))
    fitting(table, _FORM)
    check_keys("key sweep.", table["sweep"], ("base", "tasks"))
    base, tasks = table["sweep"]["base"], table["sweep"].get("tasks", [])
    if kind_of_files(base).name == PRUNE:
        if tasks:
            raise ConfigError(
                f"sweep.tasks = {tasks}, but {base} configures a pruning, which has no tasks. Remove sweep.tasks."
            )
        tasks = [PRUNE]
    if not tasks or len(set(tasks)) < len(tasks):
        raise ConfigError(
            f'sweep.tasks = {tasks} is empty or names a task twice. Write a list such as ["cola", "rte"].'
        )
    options = to_options("options", table.get("options", {}), OWN)
    grid = _lists("grid", table.get("grid", {}))
    if both := sorted(options.keys() & grid.keys()):
        raise ConfigError(f"{both[0]} is in [options] and in [grid]. Keep one.")
    grids = {task: dict(grid) for task in tasks}
    for task, lists in table.get("tasks", {}).items():
        if task not in tasks:
            raise ConfigError(f"[tasks.{task}] does not name a task in sweep.tasks{schema.nearest(task, tasks)}")
        grids[task] |= _lists(f"tasks.{task}", lists)
    return base, options, grids


def _lists(where: str, table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    lists = {}
    for key, values in flatten(table):
        check_settable(f"{where}.{key}", key, OWN)
        if not isinstance(values, list) or not values:
            raise ConfigError(
                f"{where}.{key} = {schema.show(values)} is not a list of values. Write a list such as [1, 2]."
            )
        lists[key] = tuple(to_text(f"{where}.{key}", value) for value in values)
        if len(set(lists[key])) < len(values):
            raise ConfigError(f"{where}.{key} = {values} has a value twice. Remove one.")
    return lists


def _override(options: Mapping[str, str], grids: Grids, overrides: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the common options with `overrides`; also update the grids."""
    options = dict(options)
    for key, value in sorted(overrides, key=lambda pair: pair[0].startswith("tasks.")):  # a task's overrides last
        if not key.startswith("tasks."):
            check_settable(f"--{key}", key, OWN)
            options[key] = value
            for grid in grids.values():
                grid |= {key: (value,)} if key in grid else {}
            continue
        _, task, name = (*key.split(".", 2), "")[:3]
        if task not in grids or not name:
            raise ConfigError(
                f"--{key} is not --tasks.NAME.KEY with the NAME of a task. The tasks are {', '.join(grids)}."
            )
        check_settable(f"--{key}", name, OWN)
        grids[task][name] = (value,)
    return {name: value for name, value in options.items() if not all(name in grid for grid in grids.values())}


def check_keys(where: str, table: Iterable[str], known: Collection[str]) -> None:
    """Raise ConfigError, naming `where`, for a key of `table` that is not in `known`."""
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown {where}{key}{schema.nearest(key, known)}")


def check_settable(where: str, key: str, own: Collection[str]) -> None:
    """Raise ConfigError, naming `where`, if `key` is in `own`: options that bertzoo itself sets for every job."""
    if key in own:
        raise ConfigError(f"{where} sets {key}, which bertzoo sets itself for every run. Remove this option.")


def to_options(where: str, table: Mapping[str, Any], own: Collection[str]) -> dict[str, str]:
    """Return the options in a table as texts, by dotted key; raises ConfigError for one in `own`."""
    options = {key: to_text(f"{where}.{key}", value) for key, value in flatten(table)}
    for key in options:
        check_settable(f"{where}.{key}", key, own)
    return options


def flatten(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for the values of nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, schema.join(path, key))
        else:
            yield schema.join(path, key), value


def to_text(where: str, value: Any) -> str:
    """Format a value for a command line; raises ConfigError unless it is text, a number, a boolean or a list."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return json.dumps(value, ensure_ascii=False)
    raise ConfigError(
        f"{where} = {schema.show(value)} has an unknown type. Use text, a number, true, false or a list of these."
    )
