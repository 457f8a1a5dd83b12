"""Check every job of a list before the first one starts, and run the unfinished jobs, on this machine or by Slurm."""

import logging
import math
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, Any

from bertzoo.core.errors import ConfigError, Stopped, UserError
from bertzoo.core.paths import is_url
from bertzoo.core.tables import aligned
from bertzoo.data import pipeline as corpora
from bertzoo.data.sources import pieces
from bertzoo.export.lengths import check_lengths
from bertzoo.finetuning.settings import Finetune
from bertzoo.heads import NoHead, parameter_shapes
from bertzoo.jobs import job as forms
from bertzoo.jobs import local, progress
from bertzoo.jobs.job import CommandJob
from bertzoo.jobs.record import JobRecord, files_in
from bertzoo.pruning.settings import Prune
from bertzoo.runs import load_model
from bertzoo.runs.experiments import build_experiment

if TYPE_CHECKING:
    from bertzoo.jobs.search import Chooser

_BYTES = 4  # bytes of a parameter
_PROCESS = 1 << 30  # bytes of a process with JAX and its compiled programs, about
_STATE = 3  # arrays in a checkpoint: the parameters and the optimiser's two moments
_PRODUCTS = 6  # operations in training for each parameter and token: 2 forward, 4 backward
_UTILISATION = 0.5  # speed of training over that of a matrix product, about
# Commands that describe the model that they read: the key that names the model, and the config's table.
_DESCRIBED = {"transfer": ("teacher", "teacher"), "prune": ("from", "model"), "pretrain": ("from", "model")}
_SPEED = """
import json, time, jax, jax.numpy as jnp
x = jnp.ones((2048, 2048))
product = jax.jit(lambda x: x @ x)
def seconds():
    start = time.perf_counter()
    product(x).block_until_ready()
    return time.perf_counter() - start
print(json.dumps(2 * 2048**3 / min(seconds() for _ in range(6))))
"""


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run that the command line of a job describes. task: its task; None without one, or if an earlier run has it.

    check_models: raises UserError if its models are missing or do not fit; takes the set of models already checked.
    """

    recipe: Any
    task: Any = None
    check_models: Callable[[set[Any]], None] | None = None


Parse = Callable[[Sequence[str]], list[PlannedRun]]  # parses a command line; raises the command's UserError


@contextmanager
def _name_errors(job: CommandJob) -> Iterator[None]:
    """Start the messages of errors with the step's name, and add the range from which a study drew a wrong value."""
    try:
        yield
    except UserError as error:
        for key in job.fractions:
            if f"--{key}={job.options[key]}" in str(error):
                raise ConfigError(
                    f"{error} range.{key} draws this value. For whole numbers, write two of them, such as [16, 64]."
                ) from error
        if error.exit_code != UserError.exit_code or job.is_point:
            raise
        raise ConfigError(f"{job.name}: {error}") from error


@dataclass
class Checks:
    """Checks of single jobs, in the list's order. planned: the runs of a job; models: its model's config, or None."""

    record: JobRecord
    parse: Parse
    planned: dict[str, list[PlannedRun]] = field(default_factory=dict)
    models: dict[str, Any] = field(default_factory=dict)
    _checked: set[Any] = field(default_factory=set)  # models and texts
    _configs: dict[str, Any] = field(default_factory=dict)  # of models, by path
    _rows: dict[Any, int] = field(default_factory=dict)  # examples to train on, by the files of a task

    def prepare(self, jobs: Sequence[CommandJob]) -> None:
        """Read the record, and raise UserError if options, models, data or disk space would make a job fail.

        Options are checked of every new job in the list; models, data and disk space of the unfinished ones in `jobs`.
        """
        new = [job for job in self.record.list.jobs if job.name not in self.models]
        for job in new:
            self.recipe(job)
        self.record.read()
        waiting = self.record.waiting(jobs)
        for job in new:
            with _name_errors(job):
                self.check_job(job, runs=job in waiting)
        self.check_disk(waiting)

    def recipe(self, job: CommandJob) -> Any:
        """Parse a job's command line, once, and return the config of its first run, or None."""
        if job.name not in self.planned:
            with _name_errors(job):
                self.planned[job.name] = self.parse(self.record.words(job))
                self.record.recipes[job.name] = [run.recipe for run in self.planned[job.name]]
        return next((run.recipe for run in self.planned[job.name]), None)

    def check_job(self, job: CommandJob, runs: bool) -> None:
        """Record the model in a job's output, and raise UserError if the job would fail. runs: whether it will run."""
        recipe, model = self.recipe(job), None
        if job.verb in ("pretrain", "transfer") or (isinstance(recipe, Finetune) and recipe.model is not None):
            model = recipe.model  # of a fine-tuning: a new one with the word embeddings of `from`
        elif job.is_point:
            path = self.record.list.inputs_of(job).get("from", "")
            if path not in self._configs:
                self._configs[path] = load_model.read_model(path).model if path and Path(path).exists() else None
            model = self._configs[path]
        elif job.verb != "prune" and "from" in job.links:
            model = self._linked_model(job, "from")
        self.models[job.name] = model
        settings: Any = getattr(recipe, "run", None)
        if job.is_point and job.is_training and not settings.evaluate_every:
            raise UserError("run.evaluate_every = 0, but a sweep ranks trainings by held-out loss. Use 1 or more.")
        self._check_fit(job)
        if runs:
            self._check_data(job)

    def _linked_model(self, job: CommandJob, key: str) -> Any:
        """Return the config of the model that a job's `key` names, or None; raises UserError if it is no model."""
        name = job.links.get(key, "")
        if (path := self.record.list.inputs.get(name)) is None:
            return self.models.get(name)
        if not is_url(path) and forms.MODEL in job.form.reads[key]:
            load_model.check_model(Path(path))
        return None

    def _check_fit(self, job: CommandJob) -> None:
        """Raise UserError if the model that a job reads has other shapes or fewer positions than the job needs."""
        recipe, model = self.recipe(job), self.models[job.name]
        key, table = _DESCRIBED.get(job.verb, ("", ""))
        if key and (source := self._linked_model(job, key)) is not None:
            ours, theirs = (parameter_shapes(m, NoHead()) for m in (getattr(recipe, table), source))
            for name in sorted(ours.keys() | theirs.keys()):
                if ours.get(name) != theirs.get(name):
                    raise ConfigError(
                        f"[{table}] has {name} of shape {ours.get(name)}, but the model of {job.links[key]} has "
                        f"{theirs.get(name)}. Make the two configs agree."
                    )
        if job.form.by_task and model is not None:
            longest = max((run.recipe.max_length for run in self.planned[job.name]), default=0)
            if longest > model.max_positions:
                raise ConfigError(
                    f"max_length = {longest} is more than the model's {model.max_positions} positions. Use at most "
                    f"{model.max_positions}."
                )
        if job.verb == "convert" and model is not None:
            lengths = [int(length) for length in job.options.get("lengths", "").split(",") if length]
            check_lengths(lengths, model.max_positions)

    def _check_data(self, job: CommandJob) -> None:
        """Raise UserError if a job's text, task files or models are missing or wrong; each is checked once."""
        recipe = self.recipe(job)
        for run in self.planned[job.name]:
            if run.task is not None and (key := _data_key(run.recipe)) not in self._rows:
                splits = run.task.read_files()
                self._rows[key] = sum(len(splits[name].examples) for name in run.task.train)
                run.task.check_test_file()
            if job.is_point and run.check_models is not None:
                run.check_models(self._checked)
        if job.verb in ("pretrain", "transfer", "tokenize") or (job.verb == "prune" and not job.is_point):
            data = recipe if job.verb == "tokenize" else recipe.data
            outputs = {self.record.paths.output(self.record.list.job(name)) for name in self.record.list.needs(job)}
            is_checked = data.source in outputs or data.sources in self._checked
            if not is_checked and not corpora.is_corpus(data.source):
                pieces.check_sources(data.sources)
                self._checked.add(data.sources)

    def check_disk(self, jobs: Sequence[CommandJob]) -> None:
        """Raise UserError if the outputs of `jobs` do not fit their disks; existing files are subtracted."""
        needed: dict[int, int] = {}
        for job in jobs:
            path = Path(self.record.paths.output(job)).absolute()
            if is_url(self.record.paths.output(job)):
                continue
            present = sum(file.stat().st_size for file in files_in(path)) if path.exists() else 0
            folder = next(parent for parent in (path, *path.parents) if parent.exists())
            disk = folder.stat().st_dev
            needed[disk] = needed.get(disk, 0) + max(0, self.size(job) - present)
            if (free := shutil.disk_usage(folder).free) < needed[disk]:
                raise UserError(
                    f"{folder} has {free / 1e6:,.0f} MB of free space, but checkpoints and models will take at least "
                    f"{needed[disk] / 1e6:,.0f} MB. Free disk space, or use another --run_dir or --training_dir."
                )

    def parameters(self, job: CommandJob, embeddings: bool = True) -> int:
        """Return the number of parameters of a job's model, 0 if unknown; without `embeddings`, of its layers."""
        recipe = self.recipe(job)
        model = self.models[job.name] or (recipe.model if isinstance(recipe, Prune) else None)
        if model is None or recipe is None:
            return 0
        shapes = parameter_shapes(model, NoHead()).items()
        return sum(math.prod(shape) for name, shape in shapes if embeddings or not name.startswith("embedding"))

    def size(self, job: CommandJob) -> int:
        """Return the bytes on disk of a job's checkpoints and models."""
        recipe, copies = self.recipe(job), 0
        if isinstance(recipe, Finetune):
            copies = sum(run.recipe.seeds for run in self.planned[job.name])
        elif hasattr(recipe, "run"):
            copies = _STATE * (recipe.run.keep_last + bool(recipe.run.keep_best) + 1)  # one more while it is written
        return _BYTES * copies * self.parameters(job) if copies else 0

    def memory(self, job: CommandJob) -> int:
        """Return bytes of memory that a job takes at least: a process, the parameters, their gradients and moments."""
        return _PROCESS + _BYTES * (1 + _STATE) * self.parameters(job)

    def work(self, job: CommandJob) -> tuple[int, float]:
        """Return the steps and the FLOPs of a job's training; 0 for another job, or if they are unknown.

        Pruning counts FLOPs of the unpruned model; fine-tuning counts `max_length` tokens an example, an upper bound.
        """
        recipe = self.recipe(job)
        if job.is_training:
            recipes = [recipe]
            if isinstance(recipe, Prune):
                recipes = [recipe.scoring_recipe(recipe.model), recipe.tuning_recipe(recipe.model)]
                recipes *= recipe.cut.iterations
            built = [(run, i, stage) for run in map(build_experiment, recipes) for i, stage in enumerate(run.stages)]
            flops = sum(stage.steps * run.flops(i) * stage.batch_size for run, i, stage in built)
            return sum(stage.steps for _, _, stage in built), flops
        steps = flops = 0
        for recipe in (run.recipe for run in self.planned[job.name] if isinstance(run.recipe, Finetune)):
            rows = (recipe.train_rows or self._rows.get(_data_key(recipe), 0)) * recipe.epochs * recipe.seeds
            steps += -(-rows // recipe.batch_size)
            flops += _PRODUCTS * self.parameters(job, embeddings=False) * recipe.max_length * rows
        return steps, flops

    def lines(self, jobs: Sequence[CommandJob]) -> list[str]:
        """Return a table of the cost of each of `jobs`, by the speed of finished jobs or, without any, of a device."""
        work = {job.name: self.work(job) for job in jobs}
        times = {job.name: entry["seconds"] for job in jobs if (entry := self.record.entry(job)) is not None}
        timed = [name for name, seconds in times.items() if seconds and work[name][1]]
        speed = sum(work[name][1] for name in timed) / sum(times[name] for name in timed) if timed else 0.0
        with suppress(RuntimeError):  # this machine lacks the devices
            speed = speed or _UTILISATION * local.query_jax(_SPEED)
        head = ["job", "command", "parameters", "steps", "TFLOPs", "hours", "GB on disk"]
        rows, hours, size = [head], 0.0, 0
        for job in jobs:
            steps, flops = work[job.name]
            cells = [job.title, job.verb, f"{self.parameters(job):,}", f"{steps:,}", f"{flops / 1e12:,.0f}"]
            needed = flops / speed / 3600 if speed and job.name not in times else 0.0
            cells += ["finished" if job.name in times else f"{needed:.2f}", f"{self.size(job) / 1e9:.2f}"]
            hours += needed
            size += self.size(job)
            rows.append([cell if cell.strip("0.,") or not index else "" for index, cell in enumerate(cells)])
        rows.append(["all", "", "", "", "", f"{hours:.2f}", f"{size / 1e9:.2f}"])
        return aligned(rows, 2)


def _data_key(recipe: Finetune) -> tuple[Any, ...]:  # names the files of a run's task
    return recipe.task, recipe.data_dir, recipe.own, recipe.squad.heldout


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Settings for running jobs.

    environments: sets of environment variables. Jobs of one group run side by side, each with its own set.
    launcher: words that start a step of pretrain, transfer or prune on other machines.
    srun: options of srun, with which all other jobs run on a Slurm cluster; None: they run on this machine.
    cores, memory: cores and GB that each job on this machine needs; None: an even share, and an estimate.
    """

    environments: Sequence[local.Environment] = ({},)
    launcher: Sequence[str] = ()
    srun: Sequence[str] | None = None
    cores: int | None = None
    memory: float | None = None


def run_jobs(
    record: JobRecord, jobs: Sequence[CommandJob], parse: Parse, execution: Execution, chooser: "Chooser | None" = None
) -> int:
    """Run the unfinished jobs among `jobs` and write the table of progress; return the number of jobs that failed.

    All jobs are checked first. chooser: chooses the jobs that run instead of `jobs`, and sets the list of `record`.
    Raises ConfigError if a finished job's command, config, inputs or output have changed, UserError if a job cannot
    start, and Stopped after a signal.
    """
    checks, processes = Checks(record, parse), len(execution.environments)
    checks.prepare(jobs)  # before the directory exists
    begun: list[CommandJob] = []
    total = len(jobs)
    with record.locked():
        if chooser:
            record.list = replace(record.list, jobs=())
            record.write()
        batch = chooser.choose(checks, processes) if chooser else jobs
        try:
            while batch:
                total = chooser.total if chooser else total
                checks.prepare(batch)
                _check_finished(record)
                waiting = record.waiting(batch)
                names = {job.name for job in waiting}
                for job in waiting:
                    if missing := [name for name in record.unfinished(job) if name not in names]:
                        raise UserError(
                            f"{job.name} reads {missing[0]}, which is not finished. Run the stage of {missing[0]} too."
                        )
                if not begun:
                    note = f", {processes} side by side" if processes > 1 else ""
                    _LOG.info(f"{record.list.count(total)}, {len(batch) - len(waiting)} already finished{note}")
                begun += batch
                record.write()
                for _, group in groupby(batch, lambda job: job.group):
                    due = [job for job in group if record.entry(job) is None or _is_stale(record, job)]
                    _run_group(checks, [job for job in due if not _waits(record, job)], execution, begun, total)
                batch = chooser.choose(checks, processes) if chooser else []
        except KeyboardInterrupt:
            finished = len(begun) - len(record.waiting(begun))
            raise Stopped(
                f"stopped with {finished} of {record.list.count(total)} finished. Run the same command again to resume."
            ) from None
        finally:
            if record.file.exists():
                progress.publish(record)
    _check_finished(record)  # a job that ran again may have changed the inputs of a finished job
    return sum(job.name in record.states for job in begun)


def _check_finished(record: JobRecord) -> None:
    """Raise ConfigError if the command, config, inputs or output of a finished job have changed."""
    if lines := _changes(record, record.list.jobs):
        raise ConfigError(
            f"{'; '.join(lines)}. Undo these changes, or remove the outputs of these {record.list.unit} in "
            f"{record.paths.folder} to run them again."
        )


def _changes(record: JobRecord, jobs: Iterable[CommandJob]) -> list[str]:
    """Return a line for each change of the command, config, inputs or output of the finished `jobs`."""
    lines = []
    for job in jobs:
        if job.form.is_summary or record.entry(job) is None or record.unfinished(job):
            continue  # a summary runs again, and unfinished inputs run first; `run_jobs` compares at its end
        lines += [f"{job.name} is finished, but {change}" for change in record.changes(job)]
    return lines


def _is_stale(record: JobRecord, job: CommandJob) -> bool:
    """Return whether a finished job is a report or submission whose inputs have changed, so that it runs again."""
    return job.form.is_summary and not record.unfinished(job) and bool(record.changes(job))


def _waits(record: JobRecord, job: CommandJob) -> bool:
    """Return whether a job reads an unfinished or changed job; if so, record the reason in `record.states`."""
    reasons = [f"needs {name}" for name in record.unfinished(job)] or _changes(record, record.sources(job))
    if reasons:
        record.states[job.name] = "waiting", "; ".join(reasons)
    return bool(reasons)


def _run_group(
    checks: Checks, group: Sequence[CommandJob], execution: Execution, begun: Sequence[CommandJob], total: int
) -> None:
    """Run the jobs of `group` side by side and record their results; begun, total: jobs so far and in all, to log."""
    record = checks.record

    def start(job: CommandJob, environment: local.Environment) -> Popen:
        launcher, stop = execution.launcher if job.is_training else (), 0
        if execution.srun is not None and not launcher:
            launcher, stop = srun_command(job.name, execution.srun), STOP
        return local.start_command(record.words(job), record.log(job), text_file(job), launcher, environment, stop)

    def text_file(job: CommandJob) -> Path | None:  # becomes the output once the command has succeeded
        return Path(f"{record.paths.output(job)}.tmp") if job.form.prints else None

    def on_exit(job: CommandJob, code: int, seconds: float) -> None:
        try:
            if code == 0:
                if (text := text_file(job)) is not None:
                    text.replace(record.paths.output(job))
                record.finish(job, facts[job.name], seconds)
            elif code == Stopped.exit_code:
                record.states[job.name] = "stopped", ""
            else:
                record.states[job.name] = "failed", local.describe_exit(code, record.log(job))
        except UserError as error:  # the command succeeded, but its output is missing or damaged
            record.states[job.name] = "failed", f"{error} ({record.log(job)})"
        finished = len(begun) - len(record.waiting(begun))
        _LOG.info(f"{finished}/{total} {job.title}: {progress.outcome(record, job)} ({seconds:,.0f} s)")
        progress.publish(record)

    facts = {job.name: record.begin(job) for job in group}
    for job in group:
        if not job.is_point:
            _LOG.info(f"{job.name}: bertzoo {job.verb}; its output goes to {record.log(job)}")
        if not job.form.resumes:
            for path in map(Path, record.files(job)):  # partial if the job was killed
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    parallel = len(group) > 1 or any(job.is_point for job in group)
    environments, memory = execution.environments if parallel else [{}], {}
    if execution.srun is None:
        memory = {job.name: int(1e9 * (execution.memory or 0)) or checks.memory(job) for job in group}
    local.run_processes(group, environments, start, on_exit, memory, None if execution.srun else execution.cores)
    if any(record.states.get(job.name, ("",))[0] == "stopped" for job in group):
        raise KeyboardInterrupt


QUEUED = 32  # jobs in the queue at once, without --processes
QUEUED_BY_STUDY = 4  # fewer, as a study chooses these points without their scores
STOP = signal.SIGUSR1  # srun passes this signal on to all processes, whereas SIGTERM would make it kill them at once
# Runs on the node: makes the command save and end on STOP, and exits with the command's code.
_TASK = """
(trap '' USR1; exec "$@") & pid=$!
trap 'kill -TERM $pid' USR1
while kill -0 $pid 2>/dev/null; do wait $pid; code=$?; done
exit $code
"""


def srun_command(name: str, options: Sequence[str]) -> list[str]:
    """Return the words, with options of srun, that run `bertzoo` with the arguments after them on one node.

    Raises UserError without srun.
    """
    if shutil.which("srun") is None:
        raise UserError(
            "--executor=slurm needs the program srun. Run this command on a node that submits jobs to Slurm."
        )
    defaults = ["--nodes=1", "--ntasks=1", f"--job-name=bertzoo-{name}"]
    return ["srun", *defaults, *options, "sh", "-c", _TASK, "sh", sys.executable, "-P", *local.COMMAND]
