"""Flags, checks and the run of `bertzoo pipeline` and `bertzoo sweep`, whose jobs are commands of bertzoo."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError
from bertzoo.core.options import option

if TYPE_CHECKING:
    from bertzoo.jobs.job import CommandJob
    from bertzoo.jobs.record import JobRecord
    from bertzoo.jobs.run import Chooser, PlannedRun


@dataclass(frozen=True, kw_only=True)
class JobFlags:
    """The flags of a command that runs a list of jobs."""

    run_dir: str = option("the directory of the list", group="output", metavar="RUN")
    overrides: tuple[tuple[str, str], ...] = ()
    tasks: tuple[str, ...] = option(
        "only these tasks, with the steps that they need (default: all)", (), group="jobs", metavar="A,B"
    )
    processes: int | None = option(
        "fine-tunings that run at once (default: one per device; in Slurm's queue 32, of a study 4)",
        None,
        group="jobs",
        metavar="N",
        least=1,
    )
    executor: Literal["local", "slurm"] = option(
        "where the jobs run: on this machine, or on nodes of a Slurm cluster", "local", group="jobs"
    )
    srun: tuple[str, ...] | None = option(
        "for slurm: an option of srun, such as -pgpu; repeatable (default: none)",
        None,
        group="jobs",
        metavar="OPTION",
        repeat=True,
    )
    cores: int | None = option(
        "cores of each job (default: an even share; on Slurm the cluster's)",
        None,
        group="jobs",
        metavar="N",
        least=1,
    )
    memory: float | None = option(
        "memory of each job, which waits for it (default: estimated; on Slurm the cluster's)",
        None,
        group="jobs",
        metavar="GB",
        least=0.1,
    )
    list: bool = option("print the commands of all jobs and run none", False, group="jobs")
    dry_run: bool = option("check everything, print what each job costs, and run none", False, group="jobs")


class CommandLines:
    """Parses the command lines of jobs. Labels of a custom task (`own`) are read once, because this takes long."""

    def __init__(self) -> None:
        self._own: set[Any] = set()

    def __call__(self, words: Sequence[str]) -> "list[PlannedRun]":
        """Return the runs of a command line: one for each point of a sweep, else at most one.

        Raises the command's UserError.
        """
        from bertzoo.api.options import recipe_of
        from bertzoo.api.training import data_of
        from bertzoo.cli import main as cli
        from bertzoo.jobs.run import PlannedRun

        verb, options = cli.parse(words)
        if options is None:
            raise UserError(
                f"--help does not apply to a job. Remove it. `bertzoo {words[0]} --help` lists the options."
            )
        if words[0] == "sweep":
            from bertzoo.jobs.record import JobRecord

            points, *_ = verb.load(options)
            record = JobRecord(options.run_dir, points)
            return [run for point in points.jobs for run in self(record.words(point))]
        if words[0] not in ("tokenize", "pretrain", "transfer", "prune", "finetune"):
            return []
        recipe: Any = data_of(options) if words[0] == "tokenize" else recipe_of(options)
        task = None
        if words[0] == "finetune":
            own = (recipe.data_dir, recipe.own, recipe.alpha, options.teacher)
            if recipe.task != "own" or own not in self._own:
                task = verb.task_of(options, recipe)
                self._own.add(own)
        check = partial(verb.check_models, options, recipe) if hasattr(verb, "check_models") else None
        return [PlannedRun(recipe=recipe, task=task, check_models=check)]


def run_list(
    options: JobFlags,
    record: "JobRecord",
    jobs: "Sequence[CommandJob]",
    launcher: Sequence[str] = (),
    chooser: "Chooser | None" = None,
) -> int:
    """Run the jobs that are not finished, or print commands or costs as the flags say; return the exit code.

    launcher: words that start training on other machines. chooser: chooses the jobs to run, such as `jobs`.
    """
    from bertzoo.jobs import progress

    if options.list and options.dry_run:
        raise UserError("--list and --dry_run exclude each other. Keep one.")
    if options.srun and options.executor != "slurm":
        raise UserError(f"--srun={options.srun[0]} applies only to --executor=slurm. Add --executor=slurm.")
    if options.list:
        for job in jobs:
            print(progress.command_line(record, job, launcher if job.is_training else ()))
        return 0
    import jax

    jax.config.update("jax_platforms", "cpu")  # the jobs' processes need the devices
    from bertzoo.jobs import local, run
    from bertzoo.jobs.run import Checks, Execution, run_jobs

    if options.executor == "local":
        local.check_machine(options.processes, options.cores, options.memory)
    if options.dry_run:
        checks = Checks(record, CommandLines())
        checks.prepare(jobs)
        print("\n".join(checks.lines(jobs)))
        return 0
    if options.executor == "slurm":
        srun = [f"--cpus-per-task={options.cores}"] * (options.cores is not None)
        srun += [f"--mem={1000 * (options.memory or 0):.0f}M"] * (options.memory is not None)
        srun += options.srun or ()
        run.srun_command("", srun)  # raises an error without srun
        queued = options.processes or (run.QUEUED_BY_STUDY if chooser else run.QUEUED)
        execution = Execution(environments=[{}] * queued, launcher=launcher, srun=srun)
    else:
        environments = local.device_environments(options.processes, options.cores)
        execution = Execution(environments=environments, launcher=launcher, cores=options.cores, memory=options.memory)
    failed = run_jobs(record, jobs, CommandLines(), execution, chooser)
    say(f"wrote {progress.table_file(record)}")
    if failed:
        count = record.list.count(len(record.list.jobs) if chooser else len(jobs))
        say(f"{failed} of {count} failed; run the same command to try them again")
    return 1 if failed else 0
