"""Jobs: commands of bertzoo with their options, inputs and outputs. VERBS describes the commands."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertzoo.core.paths import is_url
from bertzoo.export.options import SUFFIXES

CORPUS, MODEL, TUNED, FILE = "a tokenised corpus", "a model", "a fine-tuned model", "a file for phones"
REPORT, PACKED, ZIP, SCORES = "a report", "packed inputs", "a submission", "a run with scores"
OUTPUT = "output"  # among `words`: stands for the path of the command's output
BEST = "best"  # folder of links to the best runs of a sweep
REFERENCE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A command of bertzoo as a job runs it.

    words: the positional arguments in order: keys of a stage, OUTPUT (the output's path), or literal words.
    flags: keys of a stage that are passed as flags.
    reads: for each key that names a stage, the kinds of output that the stage may have.
    makes: kind of the command's output.
    suffix: end of the output's name.
    prints: whether the output is the text that the command prints.
    resumes: whether the same command resumes after a kill. If not, the output is removed before the command runs again.
    by_task: whether the stage needs tasks.
    requires: a key that the stage must set, for itself or for each task.
    """

    words: tuple[str, ...] = ("config",)
    flags: tuple[str, ...] = ()
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    makes: str = MODEL
    suffix: str = ""
    prints: bool = False
    resumes: bool = True
    by_task: bool = False
    requires: str = ""

    @property
    def is_summary(self) -> bool:
        """Whether the output only summarises other outputs; if these change, the job runs again instead of failing."""
        return self.prints or self.makes == ZIP


ANY_MODEL = (MODEL, TUNED)
TRAINING = ("pretrain", "transfer", "prune")  # commands that run on several machines
_FROM_MODEL: dict[str, Any] = {"flags": ("from",), "reads": {"from": (MODEL,)}}
_TUNING: dict[str, Any] = {
    "flags": ("from", "teacher"),
    "reads": {"from": ANY_MODEL, "teacher": (TUNED,)},
    "makes": TUNED,
    "by_task": True,
    "requires": "from",
}
_PRINTING: dict[str, Any] = {"makes": REPORT, "prints": True}

VERBS = {
    "tokenize": Verb(words=("source", OUTPUT), flags=("config",), makes=CORPUS),
    "pretrain": Verb(**_FROM_MODEL),
    "transfer": Verb(flags=("teacher",), reads={"teacher": (MODEL,)}, requires="teacher"),
    "prune": Verb(**_FROM_MODEL, requires="from"),
    "finetune": Verb(**_TUNING),
    "sweep": Verb(**_TUNING),
    "evaluate": Verb(
        words=("from", "--json"), reads={"from": (*ANY_MODEL, FILE)}, **_PRINTING, suffix=".json", requires="from"
    ),
    "convert": Verb(words=("from", OUTPUT), reads={"from": ANY_MODEL}, makes=FILE, resumes=False, requires="from"),
    "benchmark": Verb(words=("models", "--json"), reads={"models": (*ANY_MODEL, FILE)}, **_PRINTING, suffix=".json"),
    "phone": Verb(
        words=("pack", "from", OUTPUT), reads={"from": (FILE,)}, makes=PACKED, resumes=False, requires="from"
    ),
    "results": Verb(words=("models",), reads={"models": (TUNED,)}, **_PRINTING, suffix=".md"),
    "submission": Verb(words=(OUTPUT, "models"), reads={"models": (TUNED,)}, makes=ZIP, suffix=".zip", resumes=False),
}


@dataclass(frozen=True, kw_only=True)
class CommandJob:
    """One run of a command (`verb`): a step of a pipeline, or a point of a sweep.

    links, models: names of the jobs or inputs that the command reads, by key ("from", "teacher"), and in "models".
    references: name of the job or input that each {NAME} in `source` and `options` stands for.
    options: text of each option's value; {task} in it stands for the task.
    files: options of a point that name files on which its result depends.
    settings: options of a point that come from the grid; None for a step.
    fractions: options of a point whose value a study drew from a range with a fractional end.
    rung: rung of a successive halving, from 1, at the end of the name; 0: none. All rungs of a point are one run.
    """

    name: str
    verb: str
    stage: str = ""
    task: str = ""
    config: tuple[str, ...] = ()
    source: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    references: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    settings: Mapping[str, str] | None = None
    fractions: tuple[str, ...] = ()
    rung: int = 0

    @property
    def form(self) -> Verb:
        return VERBS[self.verb]

    @property
    def is_point(self) -> bool:
        """Whether it is a point of a sweep, whose scores identify its output."""
        return self.settings is not None

    @property
    def path(self) -> str:
        """Path of the output below the list's directory, without its suffix."""
        return self.name.removesuffix(f"@{self.rung}")

    @property
    def group(self) -> str:
        """Name of the group of jobs that may run side by side: fine-tunings of a stage, all points, else one job."""
        return self.stage if self.is_point or self.form.by_task else self.name

    @property
    def makes(self) -> str:
        """Kind of the output, one of those above, such as MODEL."""
        directory = self.verb == "convert" and self.options.get("to") not in SUFFIXES
        return SCORES if self.is_point else MODEL if directory else self.form.makes

    @property
    def suffix(self) -> str:
        """Suffix of the output's name; empty for a directory."""
        return SUFFIXES.get(self.options.get("to", ""), "") if self.verb == "convert" else self.form.suffix

    @property
    def is_training(self) -> bool:
        """Whether the command can run on several machines."""
        return self.verb in TRAINING

    @property
    def title(self) -> str:
        """The job's name or, for a point, its task and settings, as text for the console."""
        if self.settings is None:
            return self.name
        return " ".join([self.task, *(f"{key}={value}" for key, value in self.settings.items())])


@dataclass(frozen=True, kw_only=True)
class OutputPaths:
    """Directory or URL (`training`) of the outputs of pretrain and transfer, and `folder` of all others.

    Outputs of prune are in `training` unless it is a URL.
    """

    folder: Path
    training: str

    def output(self, job: CommandJob) -> str:
        """Return the path or URL of a job's output."""
        in_folder = not job.is_training or (job.verb == "prune" and is_url(self.training))
        return f"{self.folder if in_folder else self.training}/{job.path}{job.suffix}"

    def readable(self, job: CommandJob) -> str:
        """Return the path at which other jobs read a job's output; for a sweep, the path of its best run."""
        return f"{self.output(job)}/{BEST}/{job.task}" if job.verb == "sweep" else self.output(job)


@dataclass(frozen=True, kw_only=True)
class JobList:
    """The jobs of a pipeline or a sweep, whose command is `kind`, in the TOML file `path`.

    jobs: in an order in which each job follows the jobs that it reads.
    identity: values that later runs in the same directory must not change.
    inputs: path or source of each input, by name.
    """

    kind: str
    path: Path
    jobs: tuple[CommandJob, ...]
    identity: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """Plural noun for the jobs: "steps", "points" or, if points need several jobs, "runs"."""
        several = any(job.rung or not job.is_point for job in self.jobs)
        return "steps" if self.kind == "pipeline" else "runs" if several else "points"

    def count(self, number: int) -> str:
        """Return a number of jobs with its unit, such as "1 point"."""
        return f"{number} {self.unit.removesuffix('s') if number == 1 else self.unit}"

    @property
    def points(self) -> list[CommandJob]:
        """The points of a sweep, without the jobs that measure their models."""
        return [job for job in self.jobs if job.is_point]

    def job(self, name: str) -> CommandJob:
        return next(job for job in self.jobs if job.name == name)

    def needs(self, job: CommandJob) -> list[str]:
        """Return the names of the jobs whose outputs a job reads."""
        return [name for name in _source_names(job) if name not in self.inputs]

    def inputs_of(self, job: CommandJob) -> dict[str, str]:
        """Return the values of the inputs that a job reads, by name; of a point, those of its `files` by option."""
        values = {name: self.inputs[name] for name in _source_names(job) if name in self.inputs}
        return values | {key: job.options[key].replace("{task}", job.task) for key in job.files}

    def words(self, job: CommandJob, paths: OutputPaths) -> list[str]:
        """Return a job's command line, after `bertzoo`."""

        def value(name: str) -> str:
            return self.inputs[name] if name in self.inputs else paths.readable(self.job(name))

        def fill(text: str) -> str:
            values = {"task": job.task, **{name: value(other) for name, other in job.references.items()}}
            return REFERENCE.sub(lambda match: values.get(match[1], match[0]), text)

        arguments = {
            "config": job.config,
            "source": [fill(job.source)],
            "from": [value(job.links["from"])] if "from" in job.links else [],
            "models": [value(name) for name in job.models],
            OUTPUT: [paths.output(job)],
        }
        words = [job.verb, *(argument for word in job.form.words for argument in arguments.get(word, [word]))]
        if job.form.by_task:
            words.append(f"--{'tasks' if job.verb == 'sweep' else 'task'}={job.task}")
        words += [f"--run_dir={paths.output(job)}"] * (OUTPUT not in job.form.words and not job.form.prints)
        words += [f"--config={name}" for name in job.config if "config" in job.form.flags]
        words += [f"--{key}={value(job.links[key])}" for key in job.form.flags if key in job.links]
        return [*words, *(f"--{key}={fill(text)}" for key, text in job.options.items())]


def _source_names(job: CommandJob) -> list[str]:
    return list(dict.fromkeys([*job.links.values(), *job.models, *job.references.values()]))


def alpha_is_one(options: Mapping[str, str]) -> bool:
    """Return whether the labels have the whole weight, so that a teacher would not contribute to the loss."""
    try:
        return float(options.get("alpha", "nan")) == 1
    except ValueError:  # the command itself rejects it
        return False
