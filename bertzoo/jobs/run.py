"""Run the unfinished jobs of a list."""

import logging
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from subprocess import Popen
from typing import Protocol

from bertzoo.core.errors import ConfigError, Stopped, UserError
from bertzoo.jobs import local, progress, slurm
from bertzoo.jobs.check import Checks, Parse
from bertzoo.jobs.job import CommandJob
from bertzoo.jobs.record import JobRecord

_LOG = logging.getLogger(__name__)


class Chooser(Protocol):
    """Chooses the points of a sweep by the scores of earlier ones: a `Study` or a `Halving`."""

    @property
    def total(self) -> int:
        """Number of jobs, as far as it is known."""
        ...

    def choose(self, checks: Checks, processes: int) -> list[CommandJob]:
        """Return the next jobs, and set the record's list to all jobs so far; [] at the end."""
        ...


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
    record: JobRecord,
    jobs: Sequence[CommandJob],
    parse: Parse,
    execution: Execution,
    chooser: Chooser | None = None,
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
                    also = f", {processes} side by side" if processes > 1 else ""
                    _LOG.info(f"{record.list.count(total)}, {len(batch) - len(waiting)} already finished{also}")
                begun += batch
                record.write()
                for _, group in groupby(batch, lambda job: job.group):
                    due = [job for job in group if record.entry(job) is None or _is_stale(record, job)]
                    _run_group(checks, [job for job in due if not _waits(record, job)], execution, begun, total)
                batch = chooser.choose(checks, processes) if chooser else []
        except KeyboardInterrupt:
            done = len(begun) - len(record.waiting(begun))
            raise Stopped(
                f"stopped with {done} of {record.list.count(total)} finished. Run the same command again to resume."
            ) from None
        finally:
            if record.file.exists():
                progress.publish(record)
    _check_finished(record)  # a job that ran again may have changed what a finished job had read
    return sum(job.name in record.states for job in begun)


def _check_finished(record: JobRecord) -> None:
    """Raise ConfigError if the command, config, inputs or output of a finished job have changed."""
    if lines := _changes(record, record.list.jobs):
        raise ConfigError(
            f"{'; '.join(lines)}. Undo these changes, or remove the outputs of these {record.list.unit} in "
            f"{record.places.folder} to run them again."
        )


def _changes(record: JobRecord, jobs: Iterable[CommandJob]) -> list[str]:
    """Return a line for each change of the command, config, inputs or output of those of `jobs` that are finished."""
    lines = []
    for job in jobs:
        if job.form.is_summary or record.entry(job) is None or record.unfinished(job):
            continue  # a summary is made again, and a job that is read runs again first; the end of the run compares
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
    """Run the jobs of `group` side by side and record how each ended; begun, total: jobs so far and in all, to log."""
    record = checks.record

    def start(job: CommandJob, environment: local.Environment) -> Popen:
        launcher, stop = execution.launcher if job.is_training else (), 0
        if execution.srun is not None and not launcher:
            launcher, stop = slurm.srun_command(job.name, execution.srun), slurm.STOP
        return local.start_command(record.words(job), record.log(job), printed(job), launcher, environment, stop)

    def printed(job: CommandJob) -> Path | None:  # becomes the output once the command has succeeded
        return Path(f"{record.places.output(job)}.tmp") if job.form.prints else None

    def ended(job: CommandJob, code: int, seconds: float) -> None:
        try:
            if code == 0:
                if (text := printed(job)) is not None:
                    text.replace(record.places.output(job))
                record.finish(job, facts[job.name], seconds)
            elif code == Stopped.exit_code:
                record.states[job.name] = "stopped", ""
            else:
                record.states[job.name] = "failed", local.describe_exit(code, record.log(job))
        except UserError as error:  # it ended well, but its output is missing or damaged
            record.states[job.name] = "failed", f"{error} ({record.log(job)})"
        done = len(begun) - len(record.waiting(begun))
        _LOG.info(f"{done}/{total} {job.title}: {progress.outcome(record, job)} ({seconds:,.0f} s)")
        progress.publish(record)

    facts = {job.name: record.begin(job) for job in group}
    for job in group:
        if not job.is_point:
            _LOG.info(f"{job.name}: bertzoo {job.verb}; its output goes to {record.log(job)}")
        if not job.form.resumes:
            _remove(record, job)
    side = len(group) > 1 or any(job.is_point for job in group)
    environments, memory = execution.environments if side else [{}], {}
    if execution.srun is None:
        memory = {job.name: int(1e9 * (execution.memory or 0)) or checks.memory(job) for job in group}
    local.run_processes(group, environments, start, ended, memory, None if execution.srun else execution.cores)
    if any(record.states.get(job.name, ("",))[0] == "stopped" for job in group):
        raise KeyboardInterrupt


def _remove(record: JobRecord, job: CommandJob) -> None:
    """Remove a job's output, which may be partial if the job was killed."""
    for path in map(Path, record.files(job)):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
