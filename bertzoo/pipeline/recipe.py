"""Read a pipeline from TOML: each of its stages runs a command of bertzoo and can read outputs of earlier stages.

KEYS describes the file's keys. A stage with tasks has a step for each task; any other stage has a single step. The name
of an earlier stage means its step for the same task, or its only step; in the key `models` it means all its steps.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertzoo.core import config, schema
from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import is_url
from bertzoo.export.options import SUFFIXES
from bertzoo.finetuning.sweep.grid import check_table, flatten, to_text
from bertzoo.finetuning.sweep.record import BEST
from bertzoo.pipeline import verbs
from bertzoo.pipeline.verbs import OUTPUT, VERBS, Verb

FOLDER = "pipelines"  # folder of pipelines in the shipped configs
KEYS = {
    "base": "shipped pipeline or file that this one changes: its keys hold wherever this file does not set them",
    "inputs.NAME": "path or source; --inputs.NAME=… replaces this value, and is required if the value is empty",
    "options.COMMAND.OPTION": "value of an option in all stages of a command, such as options.finetune.seeds",
    "stages.NAME.verb": "command that the stage runs, such as pretrain; required",
    "stages.NAME.config": "config name or file, or a list of these, for commands that take a config",
    "stages.NAME.source": "text that tokenize reads",
    "stages.NAME.from": "earlier stage or input that holds the model or file to start from",
    "stages.NAME.teacher": "earlier stage or input that holds the teacher",
    "stages.NAME.models": "list of earlier stages or inputs that benchmark, results and submission read",
    "stages.NAME.options.OPTION": "value of an option of the command",
    "stages.NAME.tasks": "list of tasks, or table of each task's options; the stage has one step per task",
    "stages.NAME.tasks.TASK.OPTION": "for one task, the value of an option, `from` or `teacher`",
}
_STAGE, _LINKS = ("verb", *verbs.KEYS, "options", "tasks"), ("from", "teacher")
_SET = ("run_dir", "task", "tasks", "from", "teacher", "json", "help")  # options that a pipeline sets itself
_NAME = re.compile(r"[A-Za-z0-9]\w*")
_REFERENCE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One run of a command (`verb`), for one task of a stage or for the whole stage.

    config: config names or files.
    links: name of the step or input that the step reads, by key ("from", "teacher").
    models: names of the steps or inputs in the key "models".
    options: text of each option's value. {NAME} in it stands for a step's output or an input, {task} for the task.
    """

    stage: str
    verb: str
    task: str = ""
    config: tuple[str, ...] = ()
    source: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The step's name: the stage's, and the task's if there is one."""
        return f"{self.stage}/{self.task}" if self.task else self.stage

    @property
    def form(self) -> Verb:
        """The Verb that describes the step's command."""
        return VERBS[self.verb]

    @property
    def makes(self) -> str:
        """Kind of the step's output, one of those in `verbs`, such as MODEL."""
        directory = self.verb == "convert" and self.options.get("to") not in SUFFIXES
        return verbs.MODEL if directory else self.form.makes

    @property
    def suffix(self) -> str:
        """Suffix of the output's name; empty for a directory."""
        return SUFFIXES.get(self.options.get("to", ""), "") if self.verb == "convert" else self.form.suffix

    @property
    def is_training(self) -> bool:
        """Whether the step's command can run on several machines."""
        return self.verb in verbs.TRAINING

    def mentions(self) -> list[str]:
        """Return the names in braces in the step's source and options, except {task}."""
        names = [name for text in (self.source, *self.options.values()) for name in _REFERENCE.findall(text)]
        return [name for name in dict.fromkeys(names) if name != "task"]


@dataclass(frozen=True, kw_only=True)
class Places:
    """Directories of a pipeline's outputs.

    training: directory or URL for outputs of pretrain and transfer; if it is a directory, also for those of prune.
    stages: directory for all other outputs.
    """

    stages: Path
    training: str

    def output(self, step: Step) -> str:
        """Return the path or URL of a step's output."""
        here = not step.is_training or (step.verb == "prune" and is_url(self.training))
        folder = str(self.stages) if here else self.training
        return f"{folder}/{step.name}{step.suffix}"

    def readable(self, step: Step) -> str:
        """Return the path at which other steps read a step's output; for a sweep, the path of its best run."""
        return f"{self.output(step)}/{BEST}/{step.task}" if step.verb == "sweep" else self.output(step)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A pipeline.

    path: the TOML file.
    steps: in an order in which each step follows the steps that it reads.
    inputs: path or source of each input, by name.
    """

    path: Path
    steps: tuple[Step, ...]
    inputs: Mapping[str, str]

    def step(self, name: str) -> Step:
        """Return the step with this name."""
        return next(step for step in self.steps if step.name == name)

    def needs(self, step: Step) -> list[str]:
        """Return the names of the steps whose outputs a step reads."""
        return [name for name in self._named(step) if name not in self.inputs]

    def inputs_of(self, step: Step) -> dict[str, str]:
        """Return the values of the inputs that a step reads, by name."""
        return {name: self.inputs[name] for name in self._named(step) if name in self.inputs}

    def _named(self, step: Step) -> list[str]:
        mentioned = [self._resolved(name, step) for name in step.mentions()]
        return list(dict.fromkeys([*step.links.values(), *step.models, *mentioned]))

    def _resolved(self, name: str, step: Step) -> str:
        return name if name in self.inputs else resolve(name, step.task, self.steps, f"stages.{step.stage}")

    def words(self, step: Step, places: Places) -> list[str]:
        """Return a step's command line, after `bertzoo`. places: directories of the outputs."""

        def value(name: str) -> str:
            return self.inputs[name] if name in self.inputs else places.readable(self.step(name))

        def filled(text: str) -> str:
            return _REFERENCE.sub(
                lambda match: step.task if match[1] == "task" else value(self._resolved(match[1], step)), text
            )

        arguments = {
            "config": step.config,
            "source": [filled(step.source)],
            "from": [value(step.links["from"])] if "from" in step.links else [],
            "models": [value(name) for name in step.models],
            OUTPUT: [places.output(step)],
        }
        words = [step.verb, *(part for word in step.form.words for part in arguments.get(word, [word]))]
        if step.form.by_task:
            words.append(f"--{'tasks' if step.verb == 'sweep' else 'task'}={step.task}")
        words += [f"--run_dir={places.output(step)}"] * step.form.run_dir
        words += [f"--config={name}" for name in step.config if "config" in step.form.flags]
        words += [f"--{key}={value(step.links[key])}" for key in step.form.flags if key in step.links]
        return [*words, *step.form.fixed, *(f"--{key}={filled(text)}" for key, text in step.options.items())]

    def only(self, tasks: Sequence[str]) -> "Pipeline":
        """Return the pipeline with the steps of `tasks`, the steps without a task, and every step that these read.

        The names of removed steps are also removed from the remaining steps' `models`. A step whose `models` would be
        empty is removed, and so is a submission that would lack a task. Without `tasks`, return the whole pipeline.
        Raises ConfigError for an unknown task.
        """
        known = {step.task for step in self.steps if step.task}
        for task in tasks:
            if task not in known:
                raise ConfigError(f"--tasks={task} is not a task of the pipeline{schema.nearest(task, known)}")
        if not tasks:
            return self
        names = {step.name for step in self.steps if not step.task or step.task in tasks}
        for step in reversed(self.steps):
            if step.name in names:
                names |= {name for name in self.needs(replace(step, models=())) if name not in self.inputs}
        steps = []
        for step in self.steps:
            models = tuple(name for name in step.models if name in names or name in self.inputs)
            # A submission has every task or is rejected.
            if step.name in names and (models == step.models or (models and step.verb != "submission")):
                steps.append(replace(step, models=models))
        return replace(self, steps=tuple(steps))


def load_pipeline(name: str | Path, overrides: Sequence[tuple[str, str]] = (), tasks: Sequence[str] = ()) -> Pipeline:
    """Return the pipeline in a TOML file or with a shipped name; raises ConfigError if it is wrong or lacks an input.

    overrides: (key, value) pairs. A key is inputs.NAME, COMMAND.OPTION for all stages of a command, or
    stages.NAME.OPTION for one stage. tasks: names of the tasks to keep, as in `Pipeline.only`.
    """
    path = config.find(name, FOLDER)
    try:
        pipeline = _build(path, config.read_over_base(path, FOLDER), overrides)
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(("--", str(path))) else f"{path}: {error}") from error
    pipeline = pipeline.only(tasks)
    read = {name for step in pipeline.steps for name in pipeline.inputs_of(step)}
    if missing := [name for name, value in pipeline.inputs.items() if name in read and not value]:
        flags = " ".join(f"--inputs.{name}=PATH" for name in missing)
        raise ConfigError(f"{path} needs a value for inputs.{', inputs.'.join(missing)}. Add {flags}.")
    return pipeline


def resolve(name: str, task: str, steps: Sequence[Step], where: str) -> str:
    """Return the name of the step for `task` in the stage `name`, or the name of the stage's only step.

    where: the key that names the stage, for messages. Raises ConfigError if the stage has no such step.
    """
    names = [step.name for step in steps if step.stage == name]
    if not names:
        raise ConfigError(
            f"{where} names {name}, which is no input and no earlier stage"
            f"{schema.nearest(name, {step.stage for step in steps})}"
        )
    if (of_task := f"{name}/{task}") in names:
        return of_task
    if len(names) > 1:
        raise ConfigError(
            f"{where} names {name}, which has a step for each of {len(names)} tasks, but "
            f"{f'none for {task}' if task else f'{where} needs a stage with one step'}. Name another stage."
        )
    return names[0]


def _build(path: Path, table: Mapping[str, Any], overrides: Sequence[tuple[str, str]]) -> Pipeline:
    _check_keys("", table, list(dict.fromkeys(key.split(".")[0] for key in KEYS)))
    inputs = {
        key: to_text(f"inputs.{key}", value) for key, value in flatten(check_table("inputs", table.get("inputs", {})))
    }
    by_verb = check_table("options", table.get("options", {}))
    _check_keys("options.", by_verb, tuple(VERBS))
    common = {verb: _options(f"options.{verb}", options) for verb, options in by_verb.items()}
    stages = check_table("stages", table.get("stages", {}))
    if not stages:
        raise ConfigError("the pipeline has no stage. Add a table [stages.NAME].")
    for name in (*inputs, *stages):
        if not _NAME.fullmatch(name) or name == "task" or (name in inputs and name in stages):
            raise ConfigError(
                f'{name} cannot name an input or a stage. Use letters, digits and _, each name once, and not "task".'
            )
    steps = [
        step for name, stage in stages.items() for step in _steps(name, check_table(f"stages.{name}", stage), common)
    ]
    linked: list[Step] = []
    for step in _overridden(steps, inputs, overrides):
        linked.append(_linked(step, [other for other in linked if other.stage != step.stage], inputs))
    return Pipeline(path=path, steps=tuple(linked), inputs=inputs)


def _steps(stage: str, table: Mapping[str, Any], common: Mapping[str, Mapping[str, str]]) -> Iterator[Step]:
    where = f"stages.{stage}"
    _check_keys(f"{where}.", table, _STAGE)
    verb = table.get("verb")
    if verb not in VERBS:
        shown = "is missing" if verb is None else f"= {schema.show(verb)} is not a command of a stage"
        raise ConfigError(f"{where}.verb {shown}. The commands are {', '.join(VERBS)}.")
    form = VERBS[verb]
    for key in verbs.KEYS:
        if key in table and key not in form.keys:
            raise ConfigError(f"{where}.{key} does not apply to {verb}. Remove the key {key}.")
        if key in form.words and key not in table and key in verbs.REQUIRED:
            raise ConfigError(f"{where}.{key} is missing, but {verb} needs it. Add this key.")
    options = {**common.get(verb, {}), **_options(f"{where}.options", table.get("options", {}))}
    step = Step(
        stage=stage,
        verb=verb,
        config=_names(f"{where}.config", table.get("config", [])),
        source=to_text(f"{where}.source", table.get("source", "")),
        links=_links(where, table),
        models=_names(f"{where}.models", table.get("models", [])),
        options=options,
    )
    tasks = table.get("tasks")
    if isinstance(tasks, list) and all(isinstance(task, str) for task in tasks):
        tasks = {task: {} for task in tasks}
    if tasks is None and not form.by_task:
        yield step
        return
    if "models" in form.words:
        raise ConfigError(f"{where}.tasks does not apply to {verb}, which reads several models. Remove tasks.")
    if not isinstance(tasks, Mapping) or not tasks:
        shown = f"is missing, but {verb} needs it" if tasks is None else f"= {schema.show(tasks)} names no tasks"
        raise ConfigError(f'{where}.tasks {shown}. Write tasks as a list such as ["cola", "rte"].')
    for task, values in tasks.items():
        if not _NAME.fullmatch(task):
            raise ConfigError(f"{where}.tasks names {task!r}, which is not the name of a task. Use letters and digits.")
        place = f"{where}.tasks.{task}"
        values = check_table(place, values)
        different = _options(place, {key: value for key, value in values.items() if key not in _LINKS})
        links = {**step.links, **_links(place, values)}
        yield replace(step, task=task, links=links, options={**options, **different})


def _linked(step: Step, steps: Sequence[Step], inputs: Mapping[str, str]) -> Step:
    """Return the step with names of stages replaced by names of steps.

    Fine-tuning with alpha = 1 gives the teacher no weight, so its teacher is removed. Raises ConfigError if a key is
    missing or names a wrong step.
    """
    links = dict(step.links)
    if (needed := step.form.requires) and needed not in links:
        raise ConfigError(f"stages.{step.stage}.{needed} is missing, but {step.verb} needs it. Add this key.")
    if step.verb == "finetune" and _is_one(step.options.get("alpha", "")):
        links.pop("teacher", None)
    by_name = {other.name: other for other in steps}
    for key, name in links.items():
        if name not in inputs:
            links[key] = resolve(name, step.task, steps, f"stages.{step.stage}.{key}")
    models: list[str] = []
    for name in step.models:
        known = [other.name for other in steps if other.stage == name]
        models += [name] if name in inputs else known or [resolve(name, "", steps, f"stages.{step.stage}.models")]
    for key, name in (*links.items(), *(("models", name) for name in models)):
        if name in by_name and by_name[name].makes not in step.form.reads[key]:
            raise ConfigError(
                f"stages.{step.stage}.{key} names {name}, which makes {by_name[name].makes}, but {step.verb} reads "
                f"{' or '.join(step.form.reads[key])}. Name another stage."
            )
    for name in step.mentions():
        if name not in inputs:
            resolve(name, step.task, steps, f"stages.{step.stage}")
    return replace(step, links=links, models=tuple(models))


def _is_one(text: str) -> bool:
    try:
        return float(text) == 1
    except ValueError:  # the command itself rejects it
        return False


def _names(where: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f'{where} = {schema.show(value)} is not a list of names. Use a list such as ["a", "b"].')
    return tuple(names)


def _links(where: str, table: Mapping[str, Any]) -> dict[str, str]:
    links = {key: table[key] for key in _LINKS if key in table}
    for key, name in links.items():
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f"{where}.{key} = {schema.show(name)} is not a name. Use the name of a stage or an input."
            )
    return links


def _options(where: str, table: Any) -> dict[str, str]:
    options = {key: to_text(f"{where}.{key}", value) for key, value in flatten(check_table(where, table))}
    for key in options:
        _check_settable(f"{where}.{key}", key)
    return options


def _check_settable(where: str, key: str) -> None:
    if key in _SET:
        raise ConfigError(f"{where} sets {key}, which the pipeline sets itself. Remove this option.")


def _overridden(steps: list[Step], inputs: dict[str, str], overrides: Sequence[tuple[str, str]]) -> list[Step]:
    """Return the steps with `overrides`; options of a stage replace options of its command. Also update `inputs`."""
    stages = {step.stage for step in steps}
    for key, value in sorted(overrides, key=lambda pair: pair[0].startswith("stages.")):
        kind, _, rest = key.partition(".")
        name, _, option = rest.partition(".")
        if kind == "inputs" and rest in inputs and value:
            inputs[rest] = value
        elif kind == "stages" and name in stages and option:
            _check_settable(f"--{key}", option)
            steps = [_with(step, option, value) if step.stage == name else step for step in steps]
        elif kind in {step.verb for step in steps} and rest:
            _check_settable(f"--{key}", rest)
            steps = [_with(step, rest, value) if step.verb == kind else step for step in steps]
        else:
            forms = [f"--inputs.NAME=VALUE (inputs: {', '.join(inputs)})"] * bool(inputs)
            forms += [f"--stages.NAME.OPTION=VALUE (stages: {', '.join(sorted(stages))})"]
            forms += [f"--COMMAND.OPTION=VALUE (commands: {', '.join(sorted({step.verb for step in steps}))})"]
            raise ConfigError(f"--{key}={value} sets nothing of the pipeline. Use {', or '.join(forms)}.")
    return steps


def _with(step: Step, option: str, value: str) -> Step:
    return replace(step, options={**step.options, option: value})


def _check_keys(where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown {where}{key}{schema.nearest(key, known)}")
