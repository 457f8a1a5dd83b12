"""Read a pipeline from TOML: each of its stages runs a command of bertzoo and can read outputs of earlier stages.

KEYS describes the file's keys. A stage with tasks has a job (step) for each task; any other stage has a single step.
The name of an earlier stage means its step for the same task, or its only step; in the key `models` it means all its
steps.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertzoo.core import config
from bertzoo.core.documents import DocumentError, fitting, show
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.jobs.job import REFERENCE, VERBS, CommandJob, JobList, alpha_is_one
from bertzoo.jobs.sweep import check_keys, check_settable, to_options

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
_STAGE = {
    **{"verb": str, "config?": str | list, "source?": str, "from?": str, "teacher?": str, "models?": str | list},
    **{"options?": dict, "tasks?": list | dict},
}
_FORM = {"inputs?": dict, "options?": {str: dict}, "stages": {str: _STAGE}}
_LINKS = ("from", "teacher")
_RESERVED = ("run_dir", "task", "tasks", "from", "teacher", "json", "help")  # options that a pipeline sets itself
_NAME = re.compile(r"[A-Za-z0-9]\w*")


def load_pipeline(name: str | Path, overrides: Sequence[tuple[str, str]] = (), tasks: Sequence[str] = ()) -> JobList:
    """Return the pipeline in a TOML file or with a shipped name; raises ConfigError if it is wrong or lacks an input.

    overrides: (key, value) pairs. A key is inputs.NAME, COMMAND.OPTION for all stages of a command, or
    stages.NAME.OPTION for one stage. tasks: names of the tasks to keep, with the steps that their steps read.
    """
    path = config.find(name, FOLDER)
    try:
        pipeline = _build(path, config.read_over_base(path, FOLDER), overrides)
    except (ConfigError, DocumentError) as error:
        raise ConfigError(str(error) if str(error).startswith(("--", str(path))) else f"{path}: {error}") from error
    pipeline = _select_tasks(pipeline, tasks)
    used = {name for job in pipeline.jobs for name in pipeline.inputs_of(job)}
    if missing := [name for name, value in pipeline.inputs.items() if name in used and not value]:
        flags = " ".join(f"--inputs.{name}=PATH" for name in missing)
        raise ConfigError(f"{path} needs a value for inputs.{', inputs.'.join(missing)}. Add {flags}.")
    return pipeline


def jobs_of(pipeline: JobList, only: Sequence[str]) -> list[CommandJob]:
    """Return the jobs of the stages in `only` (empty: all); raises UserError for a name that is no stage."""
    stages = list(dict.fromkeys(job.stage for job in pipeline.jobs))
    for name in only:
        if name not in stages:
            raise UserError(f"--only={name} is not a stage. The stages are {', '.join(stages)}.")
    return [job for job in pipeline.jobs if not only or job.stage in only]


def _select_tasks(pipeline: JobList, tasks: Sequence[str]) -> JobList:
    """Return the pipeline with the steps of `tasks` (empty: all), the steps without a task, and all that these read.

    The names of removed steps are also removed from `models` of the remaining steps. A step that loses all `models`
    is removed, and so is a submission that would lack a task. Raises ConfigError for an unknown task.
    """
    known_tasks = {job.task for job in pipeline.jobs if job.task}
    for task in tasks:
        if task not in known_tasks:
            raise ConfigError(f"--tasks={task} is not a task of the pipeline{config.nearest(task, known_tasks)}")
    if not tasks:
        return pipeline
    names = {job.name for job in pipeline.jobs if not job.task or job.task in tasks}
    for job in reversed(pipeline.jobs):
        if job.name in names:
            names |= set(pipeline.needs(replace(job, models=())))
    jobs = []
    for job in pipeline.jobs:
        models = tuple(name for name in job.models if name in names or name in pipeline.inputs)
        # A submission has every task or is rejected.
        if job.name in names and (models == job.models or (models and job.verb != "submission")):
            jobs.append(replace(job, models=models))
    return replace(pipeline, jobs=tuple(jobs))


def _build(path: Path, table: Mapping[str, Any], overrides: Sequence[tuple[str, str]]) -> JobList:
    check_keys("", table, list(dict.fromkeys(key.split(".")[0] for key in KEYS)))
    fitting(table, _FORM)
    inputs = to_options("inputs", table.get("inputs", {}), ())
    by_verb, stages = table.get("options", {}), table["stages"]
    check_keys("options.", by_verb, VERBS)
    common = {verb: to_options(f"options.{verb}", options, _RESERVED) for verb, options in by_verb.items()}
    for name in (*inputs, *stages):
        if not _NAME.fullmatch(name) or name == "task" or (name in inputs and name in stages):
            raise ConfigError(
                f'{name} cannot name an input or a stage. Use letters, digits and _, each name once, and not "task".'
            )
    jobs = [job for name, stage in stages.items() for job in _steps(name, stage, common)]
    linked: list[CommandJob] = []
    for job in _apply_overrides(jobs, inputs, overrides):
        linked.append(_link(job, [other for other in linked if other.stage != job.stage], inputs))
    identity = {"pipeline": path.stem}
    return JobList(kind="pipeline", path=path, jobs=tuple(linked), identity=identity, inputs=inputs)


def _steps(stage: str, table: Mapping[str, Any], common: Mapping[str, Mapping[str, str]]) -> Iterator[CommandJob]:
    where, verb = f"stages.{stage}", table["verb"]
    check_keys(f"{where}.", table, [key.removesuffix("?") for key in _STAGE])
    check_keys(f"{where}.verb ", [verb], VERBS)
    form = VERBS[verb]
    for key in ("config", "source", "from", "teacher", "models"):
        if key in table and key not in (*form.words, *form.flags):
            raise ConfigError(f"{where}.{key} does not apply to {verb}. Remove the key {key}.")
        if key in form.words and key not in table and key != "from":  # each task may have its own
            raise ConfigError(f"{where}.{key} is missing, but {verb} needs it. Add this key.")
    job = CommandJob(
        name=stage,
        stage=stage,
        verb=verb,
        config=_names(f"{where}.config", table.get("config", [])),
        source=table.get("source", ""),
        links={key: table[key] for key in _LINKS if key in table},
        models=_names(f"{where}.models", table.get("models", [])),
        options={**common.get(verb, {}), **to_options(f"{where}.options", table.get("options", {}), _RESERVED)},
    )
    tasks = table.get("tasks")
    if isinstance(tasks, list) and all(isinstance(task, str) for task in tasks):
        tasks = {task: {} for task in tasks}
    if tasks is None and not form.by_task:
        yield job
        return
    if "models" in form.words:
        raise ConfigError(f"{where}.tasks does not apply to {verb}, which reads several models. Remove tasks.")
    if not isinstance(tasks, Mapping) or not tasks:
        problem = f"is missing, but {verb} needs it" if tasks is None else f"= {show(tasks)} names no tasks"
        raise ConfigError(f'{where}.tasks {problem}. Write tasks as a list such as ["cola", "rte"].')
    for task, values in tasks.items():
        if not _NAME.fullmatch(task):
            raise ConfigError(f"{where}.tasks names {task!r}, which is not the name of a task. Use letters and digits.")
        key = f"{where}.tasks.{task}"
        links = fitting(values, {"from?": str, "teacher?": str}, key)
        links = {**job.links, **{name: links[name] for name in _LINKS if name in links}}
        options = to_options(key, {name: value for name, value in values.items() if name not in _LINKS}, _RESERVED)
        yield replace(job, name=f"{stage}/{task}", task=task, links=links, options={**job.options, **options})


def _link(job: CommandJob, jobs: Sequence[CommandJob], inputs: Mapping[str, str]) -> CommandJob:
    """Return the job with names of stages replaced by names of jobs.

    Fine-tuning with alpha = 1 gives the teacher no weight, so its teacher is removed. Raises ConfigError if a key is
    missing or names a wrong job.
    """
    where, links = f"stages.{job.stage}", dict(job.links)
    if (required := job.form.requires) and required not in links:
        raise ConfigError(f"{where}.{required} is missing, but {job.verb} needs it. Add this key.")
    if job.verb == "finetune" and alpha_is_one(job.options):
        links.pop("teacher", None)

    def resolve(name: str, task: str, where: str) -> str:
        """Return the input `name`, the name of the job for `task` in the stage `name`, or that of its only job."""
        names = [name] if name in inputs else [other.name for other in jobs if other.stage == name]
        if not names:
            stages = {other.stage for other in jobs}
            raise ConfigError(f"{where} names {name}, no input and no earlier stage{config.nearest(name, stages)}")
        if (of_task := f"{name}/{task}") in names:
            return of_task
        if len(names) > 1:
            raise ConfigError(
                f"{where} names {name}, which has a step for each of {len(names)} tasks, but "
                f"{f'none for {task}' if task else f'{where} needs a stage with one step'}. Name another stage."
            )
        return names[0]

    links = {key: resolve(name, job.task, f"{where}.{key}") for key, name in links.items()}
    models: list[str] = []
    for name in job.models:
        models += [other.name for other in jobs if other.stage == name] or [resolve(name, "", f"{where}.models")]
    by_name = {other.name: other for other in jobs}
    for key, name in (*links.items(), *(("models", name) for name in models)):
        if name in by_name and by_name[name].makes not in job.form.reads[key]:
            raise ConfigError(
                f"{where}.{key} names {name}, which makes {by_name[name].makes}, but {job.verb} reads "
                f"{' or '.join(job.form.reads[key])}. Name another stage."
            )
    names = [name for text in (job.source, *job.options.values()) for name in REFERENCE.findall(text)]
    references = {name: resolve(name, job.task, where) for name in names if name != "task"}
    return replace(job, links=links, models=tuple(models), references=references)


def _names(where: str, value: str | list[str]) -> tuple[str, ...]:
    return tuple(fitting([value] if isinstance(value, str) else value, [str], where))


def _apply_overrides(
    jobs: list[CommandJob], inputs: dict[str, str], overrides: Sequence[tuple[str, str]]
) -> list[CommandJob]:
    """Return the jobs with `overrides`; options of a stage replace options of its command. Also update `inputs`."""
    stages, verbs = {job.stage for job in jobs}, {job.verb for job in jobs}
    for key, value in sorted(overrides, key=lambda pair: pair[0].startswith("stages.")):
        kind, _, rest = key.partition(".")
        name, _, option = rest.partition(".")
        if kind == "inputs" and rest in inputs and value:
            inputs[rest] = value
            continue
        if kind == "stages" and name in stages and option:
            matches = [job.stage == name for job in jobs]
        elif kind in verbs and rest:
            matches, option = [job.verb == kind for job in jobs], rest
        else:
            forms = [f"--inputs.NAME=VALUE (inputs: {', '.join(inputs)})"] * bool(inputs)
            forms += [f"--stages.NAME.OPTION=VALUE (stages: {', '.join(sorted(stages))})"]
            forms += [f"--COMMAND.OPTION=VALUE (commands: {', '.join(sorted(verbs))})"]
            raise ConfigError(f"--{key}={value} sets nothing of the pipeline. Use {', or '.join(forms)}.")
        check_settable(f"--{key}", option, _RESERVED)
        jobs = [
            replace(job, options={**job.options, option: value}) if match else job
            for job, match in zip(jobs, matches, strict=True)
        ]
    return jobs
