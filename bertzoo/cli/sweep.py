"""Fine-tune, pretrain or prune over a grid of settings, one process per device.

CONFIG's [grid] lists values for options of the base config's command, such as `bertzoo finetune`; [tasks.NAME] replaces
them for one task. A point is a run with one combination. The same command resumes: it skips finished points.
--KEY=VALUE sets an option of every point, --tasks.NAME.KEY=VALUE of one task's points, where {task} stands for NAME.
Without tasks, the best point has the lowest held-out loss. RUN/sweep.csv has a line for every point. Exit code 1: a
point failed; 3: a signal stopped the sweep. Under --budget_ms, RUN/pareto has configs of the best models.

examples:
  bertzoo sweep squeezebert --tasks=rte,mrpc --data_dir=glue --from=runs/mnli --teacher='runs/teacher/{task}' \
--run_dir=runs/sweep
  bertzoo sweep mobilebert --data_dir=glue --from=runs/mobilebert --run_dir=runs/sweep --list
  bertzoo sweep budget --random=30 --halving=3 --budget_ms=0.3 --run_dir=runs/budget
"""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bertzoo.cli.support import JobFlags, job_option, log, run_list
from bertzoo.core.errors import UserError
from bertzoo.core.options import option

if TYPE_CHECKING:
    from bertzoo.jobs.job import JobList
    from bertzoo.jobs.search import Chooser

PASSES_ON = (
    "Options and keys of `bertzoo finetune`, or of the base config's command. `bertzoo config finetune` prints every "
    "key and its value."
)
_search_option = partial(option, group="search")


@dataclass(frozen=True)
class SweepFlags(JobFlags):
    sweep: str = option("a TOML file or the name of a shipped sweep", metavar="CONFIG")
    _: KW_ONLY
    random: int = job_option("points per task, drawn at random from the grid (default: all)", 0, metavar="N", least=1)
    trials: int | None = job_option(
        "points per task that Optuna chooses by the scores of earlier ones (default: no study)",
        None,
        metavar="N",
        least=1,
    )
    sampler: Literal["tpe", "random"] | None = job_option("for --trials: how it chooses (default: tpe)", None)
    random_seed: int | None = job_option(
        "seed with which --random or --trials draws points (default: 0)", None, metavar="S"
    )
    halving: int | None = _search_option(
        "rungs: each trains the better half for twice the FLOPs (default: none)", None, metavar="N", least=1
    )
    budget_ms: float | None = _search_option(
        "most milliseconds of a sequence in a model (default: no limit)", None, metavar="MS", least=0
    )
    table: Path | None = _search_option("for --budget_ms: a latency table (default: measure)", None, metavar="FILE")


def load(options: SweepFlags) -> "tuple[JobList, Chooser | None]":
    """Return the points of a sweep, and the chooser of the points that run, or None."""
    from bertzoo.jobs.search import Budget, Halving, Study
    from bertzoo.jobs.sweep import load_sweep

    if options.trials and options.random:
        raise UserError("--random and --trials exclude each other. Keep one.")
    if options.sampler and not options.trials:
        raise UserError(f"--sampler={options.sampler} applies only to --trials. Add --trials=N, the number of points.")
    if options.table and options.budget_ms is None:
        raise UserError(f"--table={options.table} applies only to --budget_ms. Add --budget_ms=MS.")
    if options.halving and options.trials:
        raise UserError("--halving and --trials exclude each other. Keep one; --random=N draws points of a grid.")
    budget = None if options.budget_ms is None else Budget(options.budget_ms, options.table)
    name, seed, study = options.sweep, options.random_seed, None
    if options.trials:
        study = Study(options.trials, options.sampler or "tpe", seed, budget)
    points = load_sweep(name, options.overrides, options.tasks, options.random, seed, study)
    if budget is None and not options.halving:
        return points, study
    flag = f"--halving={options.halving}" if options.halving else f"--budget_ms={options.budget_ms:g}"
    if (verb := points.jobs[0].verb) not in ("pretrain", "transfer"):
        raise UserError(f"{flag} needs a sweep of pretrain or transfer, but its points run {verb}. Leave it out.")
    if options.list:
        raise UserError(f"{flag} chooses the runs while the sweep goes on, so --list cannot print them. Leave one out.")
    return points, study or Halving(points.jobs, options.halving or 0, budget)


def main(options: SweepFlags) -> int:
    from bertzoo.jobs import progress
    from bertzoo.jobs.record import JobRecord

    points, chooser = load(options)
    record, first = JobRecord(options.run_dir, points), points.jobs[0]
    if options.budget_ms is not None:
        from bertzoo.export.litert import write
        from bertzoo.runs.report import new_figure

        new_figure(1, 1)  # raises if the package that draws is missing
        if options.table is None:
            write.check_packages()
    code = run_list(options, record, points.jobs, chooser=chooser)
    if not options.list and not options.dry_run:
        for job in progress.best_points(record):
            settings, output = job.title.partition(" ")[2], record.paths.output(job)
            print(f"best of {job.task}: {progress.outcome(record, job)} with {settings}, in {output}")
        log(f"all points: {progress.table_file(record)}")
        if options.budget_ms is not None:
            from bertzoo.jobs.search import write_front

            for path in write_front(record, options.budget_ms):
                log(f"wrote {path}")
        command = f"report {record.path}/best/{first.task}" if first.is_training else f"results {record.path}"
        log(f"next: bertzoo {command}")
    return code
