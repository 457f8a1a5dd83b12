"""Read a sweep's grid of options from TOML, and list its combinations, all or at random. KEYS describes the file's
keys.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from bertzoo.core import config, schema
from bertzoo.core.errors import ConfigError
from bertzoo.core.kinds import kind_of_files

VERSION = 1  # format of sweep.json
FOLDER = "sweeps"  # folder of sweeps in the shipped configs
KEYS = {
    "sweep.base": "name or file of the config of every run, such as finetune or prune_66m; required",
    "sweep.tasks": "list of tasks; required for fine-tunings, not allowed for prunings",
    "options.OPTION": "value of an option of `bertzoo finetune` or `bertzoo prune` for all runs",
    "grid.OPTION": "list of an option's values; the sweep has a run for every combination",
    "tasks.NAME.OPTION": "list of an option's values for one task; it replaces the list in [grid], if any",
}
OWN = ("task", "run_dir")  # options that a sweep sets itself
PRUNE = "prune"  # the command of a pruning's points, and what stands in place of their task
PLACEHOLDER = "{task}"
Options = Mapping[str, str]  # as on a command line
Lists = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """A run of a sweep.

    base: name of the run's config.
    settings: options from the grid.
    options: all options of the run, including `settings`.
    task: name of the task to fine-tune on, or PRUNE for a pruning.
    """

    base: str
    task: str
    settings: Options
    options: Options

    @property
    def name(self) -> str:
        """A name that depends only on the task and the settings, not on the rest of the grid."""
        return f"{self.task}/{_digest(self.task, self.settings)[:12]}"

    @property
    def is_pruning(self) -> bool:
        """Whether the run is one of `bertzoo prune`, not of `bertzoo finetune`."""
        return self.task == PRUNE

    @property
    def without_teacher(self) -> bool:
        """Whether alpha = 1, so that a teacher would not contribute to the loss."""
        with suppress(ValueError):  # the run itself rejects a text that is not a number
            return float(self.options.get("alpha", "nan")) == 1
        return False

    def arguments(self, run_dir: Path | str) -> list[str]:
        """Return the arguments of the command `bertzoo` for this run, without --teacher if `without_teacher`."""
        options = dict(self.options)
        if self.without_teacher:
            options.pop("teacher", None)
        flags = [f"--{key}={value.replace(PLACEHOLDER, self.task)}" for key, value in options.items()]
        command = [PRUNE, self.base] if self.is_pruning else ["finetune", self.base, f"--task={self.task}"]
        return [*command, f"--run_dir={run_dir}", *flags]

    def described(self) -> str:
        """Return the settings as text for the console."""
        return " ".join(f"{key}={value}" for key, value in self.settings.items())


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The runs of a grid.

    base: name of the config of all runs.
    options: options that all runs have in common.
    grids: values of each option in the grid, by task.
    """

    base: str
    options: Options
    grids: Mapping[str, Lists]

    def identity(self) -> dict[str, Any]:
        """Return the settings that a resumed sweep must not change: `options`, and the base config's name and hash."""
        base = hashlib.sha256(config.find(self.base).read_bytes()).hexdigest()
        return {"version": VERSION, "base": self.base, "base_sha256": base, "options": dict(self.options)}

    def points(self, random: int = 0, seed: int = 0) -> list[SweepPoint]:
        """Return the runs, task by task; the last option of a grid changes fastest.

        random: number of runs to draw for each task, by `seed`; 0: all. If `random` grows, the runs that were drawn
        before are drawn again.
        """
        points = []
        for task, grid in self.grids.items():
            of_task = []
            for values in product(*grid.values()):
                settings = dict(zip(grid, values, strict=True))
                common = {key: value for key, value in self.options.items() if key not in settings}
                of_task.append(SweepPoint(base=self.base, task=task, settings=settings, options=common | settings))
            drawn = {point.name for point in sorted(of_task, key=lambda point: _digest(seed, point.name))[:random]}
            points += [point for point in of_task if not random or point.name in drawn]
        return points


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def load_sweep(name: str | Path, overrides: Sequence[tuple[str, str]] = (), tasks: Sequence[str] = ()) -> Sweep:
    """Load a sweep from a file, or a shipped sweep by name; raises ConfigError for a wrong file or task.

    overrides: (key, value) pairs. The key OPTION sets an option of all runs, tasks.NAME.OPTION of one task's runs. The
    value replaces the option's list in the grid. tasks: the tasks to keep; empty: all.
    """
    path = config.find(name, FOLDER)
    try:
        sweep = _build(config.read_toml(path))
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error
    sweep = _override(sweep, overrides)
    for task in tasks:
        if task not in sweep.grids:
            raise ConfigError(f"--tasks={task} is not a task of the sweep{schema.nearest(task, sweep.grids)}")
    return replace(sweep, grids={task: grid for task, grid in sweep.grids.items() if not tasks or task in tasks})


def _build(table: Mapping[str, Any]) -> Sweep:
    known = dict.fromkeys(key.split(".")[0] for key in KEYS)
    for key, part in table.items():
        if key not in known:
            raise ConfigError(f"unknown table {key}{schema.nearest(key, known)}")
        check_table(key, part)
    head = table.get("sweep", {})
    for key in head:
        if key not in ("base", "tasks"):
            raise ConfigError(f"unknown key sweep.{key}{schema.nearest(key, ('base', 'tasks'))}")
    base, tasks = head.get("base"), head.get("tasks")
    if not isinstance(base, str) or not base:
        raise ConfigError("sweep.base is missing. Name the config of every run, such as finetune.")
    if kind_of_files(base).name == PRUNE:
        if tasks is not None:
            raise ConfigError(
                f"sweep.tasks = {schema.show(tasks)}, but {base} configures a pruning, which has no tasks. "
                "Remove sweep.tasks."
            )
        tasks = [PRUNE]
    if not isinstance(tasks, list) or not tasks or not all(isinstance(task, str) and task for task in tasks):
        shown = "is missing" if tasks is None else f"= {schema.show(tasks)} is not a list of tasks"
        raise ConfigError(f'sweep.tasks {shown}. Write it as a list such as ["cola", "rte"].')
    if len(set(tasks)) < len(tasks):
        raise ConfigError(f"sweep.tasks = {tasks} names a task twice. Remove one.")
    options = {key: to_text(f"options.{key}", value) for key, value in flatten(table.get("options", {}))}
    grid = _lists("grid", table.get("grid", {}))
    for key in options:
        if key in grid:
            raise ConfigError(f"{key} is in [options] and in [grid]. Keep one.")
        check_settable(f"options.{key}", key)
    grids = {task: dict(grid) for task in tasks}
    for task, lists in table.get("tasks", {}).items():
        if task not in tasks:
            raise ConfigError(f"[tasks.{task}] does not name a task in sweep.tasks{schema.nearest(task, tasks)}")
        grids[task] |= _lists(f"tasks.{task}", check_table(f"tasks.{task}", lists))
    return Sweep(base=base, options=options, grids=grids)


def _lists(where: str, table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    lists = {}
    for key, values in flatten(table):
        check_settable(f"{where}.{key}", key)
        if not isinstance(values, list) or not values:
            raise ConfigError(
                f"{where}.{key} = {schema.show(values)} is not a list of values. Write a list such as [1, 2]."
            )
        lists[key] = tuple(to_text(f"{where}.{key}", value) for value in values)
        if len(set(lists[key])) < len(values):
            raise ConfigError(f"{where}.{key} = {values} has a value twice. Remove one.")
    return lists


def check_table(where: str, value: Any) -> Mapping[str, Any]:
    """Return `value` if it is a TOML table; otherwise, raise ConfigError naming the value's key, `where`."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} = {schema.show(value)} is not a table. Write it as [{where}].")
    return value


def flatten(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for the values of nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, schema.join(path, key))
        else:
            yield schema.join(path, key), value


def check_settable(where: str, key: str, more: Sequence[str] = ()) -> None:
    """Raise ConfigError, naming `where`, if `key` is in OWN or `more`: options that the sweep itself sets."""
    if key in OWN or key in more:
        raise ConfigError(f"{where} cannot be set, because the sweep sets it for every run. Remove it.")


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


def _override(sweep: Sweep, overrides: Sequence[tuple[str, str]]) -> Sweep:
    options, grids = dict(sweep.options), {task: dict(grid) for task, grid in sweep.grids.items()}
    for key, value in sorted(overrides, key=lambda pair: pair[0].startswith("tasks.")):  # a task's overrides last
        if not key.startswith("tasks."):
            check_settable(f"--{key}", key)
            options[key] = value
            for grid in grids.values():
                if key in grid:
                    grid[key] = (value,)
            continue
        _, task, name = (*key.split(".", 2), "")[:3]
        if task not in grids or not name:
            raise ConfigError(
                f"--{key} is not of the form --tasks.NAME.KEY with the NAME of a task. The tasks are "
                f"{', '.join(grids)}."
            )
        check_settable(f"--{key}", name)
        grids[task][name] = (value,)
    everywhere = {name for name in options if all(name in grid for grid in grids.values())}
    options = {name: value for name, value in options.items() if name not in everywhere}
    return replace(sweep, options=options, grids=grids)
