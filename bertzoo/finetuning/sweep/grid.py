"""The grid of a sweep, read from TOML, and its points in order or a random part of them.

The tables are [sweep] with `base`, the config of every run, and `tasks`; [options], the same at all points; [grid], by
option the list of its values; and [tasks.NAME], the lists of one task, which take the place of the grid's or add to it.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from bertzoo.core import config, schema
from bertzoo.core.errors import ConfigError

VERSION = 1  # of what a directory says that it is of
FOLDER = "sweeps"  # in the shipped configs
OWN = ("task", "run_dir")  # options that a sweep sets itself
PLACEHOLDER = "{task}"
Options = Mapping[str, str]  # as a command line has them
Lists = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Point:
    """A run of a sweep. settings: of the grid; options: all, `settings` among them; base: its config."""

    base: str
    task: str
    settings: Options
    options: Options

    @property
    def name(self) -> str:
        """A name that its task and its place in the grid alone decide, whatever else is in the grid."""
        return f"{self.task}/{_digest(self.task, self.settings)[:12]}"

    @property
    def alone(self) -> bool:
        """Whether a teacher would have no share in what is learnt."""
        with suppress(ValueError):  # what is no number the run itself refuses
            return float(self.options.get("alpha", "nan")) == 1
        return False

    def arguments(self, run_dir: Path | str) -> list[str]:
        """The command line of its run. A teacher that has no share in what is learnt is left out."""
        options = dict(self.options)
        if self.alone:
            options.pop("teacher", None)
        given = [f"--{key}={value.replace(PLACEHOLDER, self.task)}" for key, value in options.items()]
        return ["finetune", self.base, f"--task={self.task}", f"--run_dir={run_dir}", *given]

    def described(self) -> str:
        """Its place in the grid for a person."""
        return " ".join(f"{key}={value}" for key, value in self.settings.items())


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """options: the same at all points; grids: by task, in the order in which they are run, its grid."""

    base: str
    options: Options
    grids: Mapping[str, Lists]

    def about(self) -> dict[str, Any]:
        """What a directory is compared by when the sweep goes on."""
        base = hashlib.sha256(config.find(self.base).read_bytes()).hexdigest()
        return {"version": VERSION, "base": self.base, "base_sha256": base, "options": dict(self.options)}

    def points(self, random: int = 0, seed: int = 0) -> list[Point]:
        """All points, task by task, the last option of a grid changing fastest.

        random: of each task only so many, drawn by the seed; a larger number draws those of a smaller one and more.
        """
        return [point for task in self.grids for point in _drawn(list(self._of(task)), random, seed)]

    def _of(self, task: str) -> Iterator[Point]:
        grid = self.grids[task]
        for values in product(*grid.values()):
            settings = dict(zip(grid, values, strict=True))
            options = {**{key: value for key, value in self.options.items() if key not in settings}, **settings}
            yield Point(base=self.base, task=task, settings=settings, options=options)


def _drawn(points: list[Point], random: int, seed: int) -> list[Point]:
    if not random:
        return points
    chosen = set(sorted((point.name for point in points), key=lambda name: _digest(seed, name))[:random])
    return [point for point in points if point.name in chosen]


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def load(name: str | Path, overrides: Sequence[tuple[str, str]] = (), tasks: Sequence[str] = ()) -> Sweep:
    """A sweep from a file or by the name of a shipped one; `overrides` set an option for all points, in place of a list
    in the grid, `tasks.NAME.option` for those of one task; `tasks`: these alone. Raises ConfigError.
    """
    path = config.find(name, FOLDER)
    try:
        sweep = _build(tomllib.loads(path.read_bytes().decode("utf-8-sig")))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return _only(_overridden(sweep, overrides), tasks)


def _build(table: Mapping[str, Any]) -> Sweep:
    known = ("sweep", "options", "grid", "tasks")
    for key, part in table.items():
        if key not in known:
            raise ConfigError(f"unknown table {key}{schema.nearest(key, known)}")
        if not isinstance(part, Mapping):
            raise ConfigError(f"{key} must be a table, not {schema.show(part)}")
    head = table.get("sweep", {})
    for key in head:
        if key not in ("base", "tasks"):
            raise ConfigError(f"unknown key sweep.{key}{schema.nearest(key, ('base', 'tasks'))}")
    base, tasks = head.get("base"), head.get("tasks")
    if not isinstance(base, str) or not base:
        raise ConfigError("sweep.base is missing: name the config of every run, such as finetune")
    if not isinstance(tasks, list) or not tasks or not all(isinstance(task, str) and task for task in tasks):
        raise ConfigError('sweep.tasks must be a list of tasks, such as ["cola", "rte"]')
    if len(set(tasks)) < len(tasks):
        raise ConfigError(f"sweep.tasks = {tasks} names a task twice")
    options = {key: text(f"options.{key}", value) for key, value in flat(table.get("options", {}))}
    grid = _lists("grid", table.get("grid", {}))
    if both := [key for key in options if key in grid]:
        raise ConfigError(f"{both[0]} is in [options] and in [grid]; keep one")
    for key in options:
        refuse_own(f"options.{key}", key)
    own = table.get("tasks", {})
    for task, lists in own.items():
        if task not in tasks:
            raise ConfigError(f"[tasks.{task}] is of no task of sweep.tasks{schema.nearest(task, tasks)}")
        if not isinstance(lists, Mapping):
            raise ConfigError(f"tasks.{task} must be a table, not {schema.show(lists)}")
    grids = {task: {**grid, **_lists(f"tasks.{task}", own.get(task, {}))} for task in tasks}
    return Sweep(base=base, options=options, grids=grids)


def _lists(where: str, table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    made = {}
    for key, values in flat(table):
        refuse_own(f"{where}.{key}", key)
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{where}.{key} must be a list of values, not {schema.show(values)}")
        made[key] = tuple(text(f"{where}.{key}", value) for value in values)
        if len(set(made[key])) < len(values):
            raise ConfigError(f"{where}.{key} = {values} has a value twice")
    return made


def flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """What a table holds, with dotted keys."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, schema.join(path, key))
        else:
            yield schema.join(path, key), value


def refuse_own(where: str, key: str, more: Sequence[str] = ()) -> None:
    """Raise ConfigError for an option that is set for every run anyway."""
    if key in OWN or key in more:
        raise ConfigError(f"{where} cannot be set: it is set for every run")


def text(where: str, value: Any) -> str:
    """A value as a command line has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        return json.dumps(value, ensure_ascii=False)
    raise ConfigError(
        f"{where} has {schema.show(value)} where only text, a number, true or false, or these in a list do"
    )


def _overridden(sweep: Sweep, overrides: Sequence[tuple[str, str]]) -> Sweep:
    options, grids = dict(sweep.options), {task: dict(grid) for task, grid in sweep.grids.items()}
    for key, value in sorted(overrides, key=lambda pair: pair[0].startswith("tasks.")):  # of one task over of all
        _, *rest = key.split(".", 2)
        if key.startswith("tasks.") and (len(rest) < 2 or rest[0] not in grids):
            raise ConfigError(f"--{key}: tasks.NAME.option sets an option of one of the tasks {', '.join(grids)}")
        name = rest[1] if key.startswith("tasks.") else key
        refuse_own(f"--{key}", name)
        if key.startswith("tasks."):
            grids[rest[0]][name] = (value,)
            continue
        options[name] = value
        for grid in grids.values():
            if name in grid:
                grid[name] = (value,)
    everywhere = {name for name in options if all(name in grid for grid in grids.values())}
    return Sweep(
        base=sweep.base,
        options={name: value for name, value in options.items() if name not in everywhere},
        grids=grids,
    )


def _only(sweep: Sweep, tasks: Sequence[str]) -> Sweep:
    for task in tasks:
        if task not in sweep.grids:
            raise ConfigError(f"--tasks: there is no {task} in it{schema.nearest(task, sweep.grids)}")
    chosen = {task: grid for task, grid in sweep.grids.items() if not tasks or task in tasks}
    return Sweep(base=sweep.base, options=sweep.options, grids=chosen)
