"""Fine-tunings that begin with one another or teach one another, read from TOML: a chain.

The tables are [chain] with `base`, the config of every run, `models`, the names of those that are given, and `table`,
that of results in the end; [options], the same for all runs; and [stages.NAME], which has `from` and perhaps `teacher`,
a model or an earlier stage, `options`, and `tasks`, a list or a table by task of what is different for it. A stage of
many tasks stands for its run of the same task, one of a single task for that one.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertzoo.core import config, schema
from bertzoo.core.errors import ConfigError
from bertzoo.finetuning.sweep.grid import VERSION, Options, Point, flat, refuse_own, text

LINKS = ("from", "teacher")
ROOT = "chain"  # the table that marks the file
STAGES = "stages"  # in the directory of a chain, where its runs are


@dataclass(frozen=True, kw_only=True)
class Link(Point):
    """One run of a chain; links: what `from` and `teacher` name, a given model or another run by its name."""

    stage: str
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.stage}/{self.task}"

    def described(self) -> str:
        return f"of {self.stage}"


@dataclass(frozen=True, kw_only=True)
class Chain:
    """models: the names of those that are given; links: its runs, each after those that it needs; table: of results."""

    base: str
    models: tuple[str, ...]
    links: tuple[Link, ...]
    table: str = ""

    def needs(self, link: Link) -> list[str]:
        """The runs that have to be finished before one begins."""
        return [name for name in link.links.values() if name not in self.models]

    def about(self, given: Mapping[str, Path]) -> dict[str, Any]:
        """What a directory is compared by when the chain goes on."""
        base = hashlib.sha256(config.find(self.base).read_bytes()).hexdigest()
        runs = {
            link.name: {"base_sha256": base, **link.options}
            | {key: str(given[name].resolve()) if name in given else name for key, name in link.links.items()}
            for link in self.links
        }
        return {"version": VERSION, "runs": runs}

    def placed(self, given: Mapping[str, Path], folder: Path) -> list[Link]:
        """The runs, which lie in a folder, with the paths of what they begin with and of their teachers."""
        known = {**given, **{link.name: folder / link.name for link in self.links}}
        return [
            replace(link, options={**link.options, **{key: str(known[name]) for key, name in link.links.items()}})
            for link in self.links
        ]

    def only(self, tasks: Sequence[str]) -> "Chain":
        """The runs of some tasks, and those that they need; raises ConfigError for a task that is in no stage."""
        known = {link.task for link in self.links}
        for task in tasks:
            if task not in known:
                raise ConfigError(f"--tasks: there is no {task} in it{schema.nearest(task, known)}")
        kept = {link.name for link in self.links if not tasks or link.task in tasks}
        for link in reversed(self.links):
            kept |= set(self.needs(link)) if link.name in kept else set()
        return replace(self, links=tuple(link for link in self.links if link.name in kept))


def load(name: str | Path, overrides: Sequence[tuple[str, str]] = ()) -> Chain:
    """A chain from a file or by the name of a shipped one; raises ConfigError.

    overrides: an option for all runs, `stages.NAME.option` for those of one stage, `tasks.NAME.option` of one task.
    """
    path = config.find(name)
    try:
        return _build(config.read_toml(path), overrides)
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(("--", str(path))) else f"{path}: {error}") from error


def _build(table: Mapping[str, Any], overrides: Sequence[tuple[str, str]]) -> Chain:
    _known("", table, (ROOT, "options", "stages"))
    head, stages = _table(ROOT, table.get(ROOT, {})), _table("stages", table.get("stages", {}))
    _known(f"{ROOT}.", head, ("base", "models", "table"))
    base, models, shown = head.get("base"), head.get("models"), head.get("table", "")
    if not isinstance(base, str) or not base:
        raise ConfigError("chain.base is missing: name the config of every run, such as finetune")
    if not isinstance(models, list) or not models or not all(isinstance(model, str) and model for model in models):
        raise ConfigError('chain.models must be a list of names, such as ["student", "teacher"]')
    if not isinstance(shown, str):
        raise ConfigError(f"chain.table must be the name of a table of results, not {schema.show(shown)}")
    if not stages:
        raise ConfigError("there is no stage: add a table [stages.NAME]")
    for stage in stages:
        if stage in models:
            raise ConfigError(f"{stage} is the name of a model and of a stage: call one of them otherwise")
    everywhere = _options("options", table.get("options", {}))
    links = [link for stage, found in stages.items() for link in _links(base, stage, found, everywhere)]
    links = _overridden(links, overrides)
    return Chain(base=base, models=tuple(models), links=_ordered(_resolved(links, models), models), table=shown)


def _links(base: str, stage: str, table: Any, everywhere: Options) -> Iterator[Link]:
    where = f"stages.{stage}"
    table = _table(where, table)
    _known(f"{where}.", table, (*LINKS, "options", "tasks"))
    common, tasks = _named(where, table), table.get("tasks")
    own = {**everywhere, **_options(f"{where}.options", table.get("options", {}))}
    if isinstance(tasks, list) and all(isinstance(task, str) for task in tasks):
        tasks = {task: {} for task in tasks}
    if not isinstance(tasks, Mapping) or not tasks:
        raise ConfigError(f"{where}.tasks must be a list of tasks, or a table with one for each")
    for task, found in tasks.items():
        place = f"{where}.tasks.{task}"
        found = _table(place, found)
        named = {**common, **_named(place, found)}
        if "from" not in named:
            raise ConfigError(f"{place} begins with nothing: name a model or a stage in {where}.from")
        different = _options(place, {key: value for key, value in found.items() if key not in LINKS})
        yield Link(base=base, task=task, settings=different, options={**own, **different}, stage=stage, links=named)


def _named(where: str, table: Mapping[str, Any]) -> dict[str, str]:
    found = {key: table[key] for key in LINKS if key in table}
    for key, name in found.items():
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where}.{key} must be the name of a model or of a stage, not {schema.show(name)}")
    return found


def _options(where: str, table: Any) -> dict[str, str]:
    found = {key: text(f"{where}.{key}", value) for key, value in flat(_table(where, table))}
    for key in found:
        refuse_own(f"{where}.{key}", key, LINKS)
    return found


def _overridden(links: list[Link], overrides: Sequence[tuple[str, str]]) -> list[Link]:
    parts = {"stages": {link.stage for link in links}, "tasks": {link.task for link in links}}
    for key, value in sorted(overrides, key=lambda pair: pair[0].split(".")[0] in parts):  # of a part over of all
        kind, *rest = key.split(".", 2)
        name, which = key, None
        if kind in parts:
            if len(rest) < 2 or rest[0] not in parts[kind]:
                raise ConfigError(
                    f"--{key}: {kind}.NAME.option is of one of the {kind} {', '.join(sorted(parts[kind]))}"
                )
            which, name = rest
        refuse_own(f"--{key}", name, LINKS)
        links = [
            replace(link, options={**link.options, name: value})
            if which is None or which == {"stages": link.stage, "tasks": link.task}[kind]
            else link
            for link in links
        ]
    return links


def _resolved(links: list[Link], models: Sequence[str]) -> list[Link]:
    """The links with names of runs in place of those of stages, and without teachers that have no share."""
    stages: dict[str, list[str]] = {}
    for link in links:
        stages.setdefault(link.stage, []).append(link.task)
    made = []
    for link in links:
        found = {}
        for key, name in link.links.items():
            where = f"stages.{link.stage}.{key} = {name!r}"
            if key == "teacher" and link.alone:
                continue
            if name in models:
                found[key] = name
                continue
            if name not in stages:
                raise ConfigError(f"{where} is neither a model nor a stage{schema.nearest(name, [*models, *stages])}")
            if link.task not in stages[name] and len(stages[name]) > 1:
                raise ConfigError(f"{where} has {len(stages[name])} tasks, of which {link.task} is none: name another")
            found[key] = f"{name}/{link.task if link.task in stages[name] else stages[name][0]}"
        made.append(replace(link, links=found))
    return made


def _ordered(links: list[Link], models: Sequence[str]) -> tuple[Link, ...]:
    """Each after those that it needs, else as they stand; raises ConfigError for those that need one another."""
    made: dict[str, Link] = {}
    while waiting := [link for link in links if link.name not in made]:
        free = [link for link in waiting if all(name in models or name in made for name in link.links.values())]
        if not free:
            raise ConfigError(f"{' needs '.join(_circle({link.name: link for link in waiting}))}: break the circle")
        made |= {free[0].name: free[0]}
    return tuple(made.values())


def _circle(waiting: Mapping[str, Link]) -> list[str]:
    """The names of runs of which each needs the next, the last being the first again."""
    names = [next(iter(waiting))]
    while names.count(names[-1]) < 2:
        names.append(next(name for name in waiting[names[-1]].links.values() if name in waiting))
    return names[names.index(names[-1]) :]


def _table(where: str, found: Any) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise ConfigError(f"{where} must be a table, not {schema.show(found)}")
    return found


def _known(where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown {where}{key}{schema.nearest(key, known)}")
