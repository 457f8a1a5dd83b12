"""Read a chain from TOML: fine-tunings that start from one another or are each other's teachers.

KEYS describes the keys of the file. A stage in `from` or `teacher` stands for its run of the same task, or its only
run.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertzoo.core import config, schema
from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import Location, resolve_name
from bertzoo.finetuning.sweep.grid import VERSION, Options, SweepPoint, check_settable, check_table, flatten, to_text

LINKS = ("from", "teacher")
ROOT = "chain"  # the table that marks a chain
KEYS = {
    "chain.base": "name or file of the config of every run, such as finetune; required",
    "chain.models": "list of names for the input models, whose paths the command gives; required",
    "chain.table": "table of results that the chain prints at the end; optional",
    "options.OPTION": "value of an option of `bertzoo finetune` in all runs",
    "stages.NAME.from": "model or earlier stage that the runs start from; required",
    "stages.NAME.teacher": "model or earlier stage whose predictions the runs learn",
    "stages.NAME.options.OPTION": "value of an option in the runs of this stage",
    "stages.NAME.tasks": "list of tasks, or a table of differences by task; required",
    "stages.NAME.tasks.TASK.OPTION": "value of an option, of `from` or of `teacher` in the run of one task",
}
STAGES = "stages"  # folder of the runs in a chain's directory


@dataclass(frozen=True, kw_only=True)
class Link(SweepPoint):
    """One run of a chain; links: names of the input models or runs for `from` and `teacher`."""

    stage: str
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.stage}/{self.task}"

    def described(self) -> str:
        return f"of {self.stage}"


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A chain of runs. models: names of the input models; links: the runs, each after those that it needs; table: name
    of the table of results.
    """

    base: str
    models: tuple[str, ...]
    links: tuple[Link, ...]
    table: str = ""

    def needs(self, link: Link) -> list[str]:
        """The runs that must finish before `link` starts."""
        return [name for name in link.links.values() if name not in self.models]

    def identity(self, paths: Mapping[str, Location]) -> dict[str, Any]:
        """Return the settings that a resumed chain must not change."""
        base = hashlib.sha256(config.find(self.base).read_bytes()).hexdigest()
        runs = {
            link.name: {"base_sha256": base, **link.options}
            | {key: resolve_name(paths[name]) if name in paths else name for key, name in link.links.items()}
            for link in self.links
        }
        return {"version": VERSION, "runs": runs}

    def placed(self, paths: Mapping[str, Location], folder: Path) -> list[Link]:
        """Return the runs with the paths of their models and teachers as options; runs are inside `folder`."""
        known = {**paths, **{link.name: folder / link.name for link in self.links}}
        return [
            replace(link, options={**link.options, **{key: str(known[name]) for key, name in link.links.items()}})
            for link in self.links
        ]

    def only(self, tasks: Sequence[str]) -> "Chain":
        """Keep only the runs of `tasks` and those that they need; raises ConfigError for an unknown task."""
        known = {link.task for link in self.links}
        for task in tasks:
            if task not in known:
                raise ConfigError(f"--tasks={task} is not a task of the chain{schema.nearest(task, known)}")
        kept = {link.name for link in self.links if not tasks or link.task in tasks}
        for link in reversed(self.links):
            kept |= set(self.needs(link)) if link.name in kept else set()
        return replace(self, links=tuple(link for link in self.links if link.name in kept))


def load_chain(name: str | Path, overrides: Sequence[tuple[str, str]] = ()) -> Chain:
    """Load a chain from a file, or a shipped one by name; raises ConfigError.

    overrides: (key, value) pairs; a key is an option for all runs, `stages.NAME.option` for those of one stage, or
    `tasks.NAME.option` of one task.
    """
    path = config.find(name)
    try:
        return _build(config.read_toml(path), overrides)
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(("--", str(path))) else f"{path}: {error}") from error


def _build(table: Mapping[str, Any], overrides: Sequence[tuple[str, str]]) -> Chain:
    _known("", table, list(dict.fromkeys(key.split(".")[0] for key in KEYS)))
    head, stages = check_table(ROOT, table.get(ROOT, {})), check_table("stages", table.get("stages", {}))
    _known(f"{ROOT}.", head, ("base", "models", "table"))
    base, models, shown = head.get("base"), head.get("models"), head.get("table", "")
    if not isinstance(base, str) or not base:
        raise ConfigError("chain.base is missing. Name the config of every run, such as finetune.")
    if not isinstance(models, list) or not models or not all(isinstance(model, str) and model for model in models):
        raise ConfigError('chain.models is not a list of names. Write it as ["student", "teacher"].')
    if not isinstance(shown, str):
        raise ConfigError(
            f"chain.table = {schema.show(shown)} is not the name of a table of `bertzoo results`. Correct it."
        )
    if not stages:
        raise ConfigError("the chain has no stage. Add a table [stages.NAME].")
    for stage in stages:
        if stage in models:
            raise ConfigError(f"{stage} is the name of a model and of a stage. Rename one of them.")
    everywhere = _options("options", table.get("options", {}))
    links = [link for stage, found in stages.items() for link in _links(base, stage, found, everywhere)]
    links = _overridden(links, overrides)
    return Chain(base=base, models=tuple(models), links=_ordered(_resolved(links, models), models), table=shown)


def _links(base: str, stage: str, table: Any, everywhere: Options) -> Iterator[Link]:
    where = f"stages.{stage}"
    table = check_table(where, table)
    _known(f"{where}.", table, (*LINKS, "options", "tasks"))
    common, tasks = _named(where, table), table.get("tasks")
    own = {**everywhere, **_options(f"{where}.options", table.get("options", {}))}
    if isinstance(tasks, list) and all(isinstance(task, str) for task in tasks):
        tasks = {task: {} for task in tasks}
    if not isinstance(tasks, Mapping) or not tasks:
        raise ConfigError(
            f'{where}.tasks is not a list of tasks or a table with one for each. Write it as ["cola", "rte"].'
        )
    for task, found in tasks.items():
        place = f"{where}.tasks.{task}"
        found = check_table(place, found)
        named = {**common, **_named(place, found)}
        if "from" not in named:
            raise ConfigError(f"{place} has no model to start from. Name a model or a stage in {where}.from.")
        different = _options(place, {key: value for key, value in found.items() if key not in LINKS})
        yield Link(base=base, task=task, settings=different, options={**own, **different}, stage=stage, links=named)


def _named(where: str, table: Mapping[str, Any]) -> dict[str, str]:
    found = {key: table[key] for key in LINKS if key in table}
    for key, name in found.items():
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where}.{key} = {schema.show(name)} is not the name of a model or a stage. Correct it.")
    return found


def _options(where: str, table: Any) -> dict[str, str]:
    found = {key: to_text(f"{where}.{key}", value) for key, value in flatten(check_table(where, table))}
    for key in found:
        check_settable(f"{where}.{key}", key, LINKS)
    return found


def _overridden(links: list[Link], overrides: Sequence[tuple[str, str]]) -> list[Link]:
    parts = {"stages": {link.stage for link in links}, "tasks": {link.task for link in links}}
    for key, value in sorted(overrides, key=lambda pair: pair[0].split(".")[0] in parts):
        # Overrides of one stage or task come last.
        kind, *rest = key.split(".", 2)
        name, which = key, None
        if kind in parts:
            if len(rest) < 2 or rest[0] not in parts[kind]:
                raise ConfigError(
                    f"--{key} does not name one of the {kind}. The {kind} are {', '.join(sorted(parts[kind]))}."
                )
            which, name = rest
        check_settable(f"--{key}", name, LINKS)
        links = [
            replace(link, options={**link.options, name: value})
            if which is None or which == {"stages": link.stage, "tasks": link.task}[kind]
            else link
            for link in links
        ]
    return links


def _resolved(links: list[Link], models: Sequence[str]) -> list[Link]:
    """Return the links with stages replaced by their runs, and without teachers that do not contribute (alpha = 1)."""
    stages: dict[str, list[str]] = {}
    for link in links:
        stages.setdefault(link.stage, []).append(link.task)
    made = []
    for link in links:
        found = {}
        for key, name in link.links.items():
            where = f"stages.{link.stage}.{key} = {name!r}"
            if key == "teacher" and link.without_teacher:
                continue
            if name in models:
                found[key] = name
                continue
            if name not in stages:
                raise ConfigError(f"{where} is neither a model nor a stage{schema.nearest(name, [*models, *stages])}")
            if link.task not in stages[name] and len(stages[name]) > 1:
                raise ConfigError(f"{where} has {len(stages[name])} tasks, but not {link.task}. Name another stage.")
            found[key] = f"{name}/{link.task if link.task in stages[name] else stages[name][0]}"
        made.append(replace(link, links=found))
    return made


def _ordered(links: list[Link], models: Sequence[str]) -> tuple[Link, ...]:
    """Sort the links so that each follows those it needs, else keep their order; raises ConfigError for a circle."""
    made: dict[str, Link] = {}
    while waiting := [link for link in links if link.name not in made]:
        free = [link for link in waiting if all(name in models or name in made for name in link.links.values())]
        if not free:
            raise ConfigError(f"{' needs '.join(_circle({link.name: link for link in waiting}))}. Break the circle.")
        made |= {free[0].name: free[0]}
    return tuple(made.values())


def _circle(waiting: Mapping[str, Link]) -> list[str]:
    """The names of a circle of runs that each need the next; the first one is repeated at the end."""
    names = [next(iter(waiting))]
    while names.count(names[-1]) < 2:
        names.append(next(name for name in waiting[names[-1]].links.values() if name in waiting))
    return names[names.index(names[-1]) :]


def _known(where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown {where}{key}{schema.nearest(key, known)}")
