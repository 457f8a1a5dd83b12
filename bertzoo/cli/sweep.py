"""Fine-tune or prune over a grid of settings, one process per device.

CONFIG's [grid] lists values for options of `bertzoo finetune`, and [tasks.NAME] replaces these values for one task. A
point is a run with one combination of values. Run the same command again to resume: it skips finished points.
--KEY=VALUE sets an option of every point; --tasks.NAME.KEY=VALUE sets an option of one task's points. {task} in a value
stands for the task's name. If the base config of the sweep is a pruning, every point runs `bertzoo prune`, and the best
point has the lowest held-out loss. RUN/sweep.csv has a line for every point. Exit code 1: a point failed; 3: a signal
stopped the sweep.

examples:
  bertzoo sweep squeezebert --tasks=rte,mrpc --data_dir=glue --from=runs/mnli --teacher='runs/teacher/{task}' \
--run_dir=runs/sweep
  bertzoo sweep mobilebert --data_dir=glue --from=runs/mobilebert --run_dir=runs/sweep --list
  bertzoo sweep schubert_search --data.source='text/*.txt.xz' --from=runs/bert_base --run_dir=runs/search
"""

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from bertzoo.cli.support.jobs import JobFlags, run_list
from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError
from bertzoo.core.options import option

if TYPE_CHECKING:
    from bertzoo.jobs.job import JobList
    from bertzoo.jobs.study import Study

PASSES_ON = (
    "Options and keys of `bertzoo finetune`, or of `bertzoo prune` for a pruning. `bertzoo config finetune` prints "
    "every key and its value."
)


@dataclass(frozen=True)
class SweepFlags(JobFlags):
    """The command's flags."""

    sweep: str = option("a TOML file or the name of a shipped sweep", metavar="CONFIG")
    _: KW_ONLY
    random: int = option(
        "number of points per task, drawn at random from the grid (default: all)", 0, group="jobs", metavar="N", least=1
    )
    trials: int | None = option(
        "number of points per task that a study of Optuna chooses by the scores of earlier ones (default: no study)",
        None,
        group="jobs",
        metavar="N",
        least=1,
    )
    sampler: Literal["tpe", "random"] | None = option(
        "for --trials: how the study chooses (default: tpe)", None, group="jobs"
    )
    random_seed: int | None = option(
        "seed with which --random or --trials draws points (default: 0)", None, group="jobs", metavar="S"
    )


def load(options: SweepFlags) -> "tuple[JobList, Study | None]":
    """Return the points of a sweep, and the study that chooses among such points, if any."""
    from bertzoo.jobs.study import Study
    from bertzoo.jobs.sweep import load_sweep

    if options.trials and options.random:
        raise UserError("--random and --trials exclude each other. Keep one.")
    if options.sampler and not options.trials:
        raise UserError(f"--sampler={options.sampler} applies only to --trials. Add --trials=N, the number of points.")
    study = Study(options.trials, options.sampler or "tpe", options.random_seed) if options.trials else None
    name, seed = options.sweep, options.random_seed
    return load_sweep(name, options.overrides, options.tasks, options.random, seed, study), study


def main(options: SweepFlags) -> int:
    """Run every unfinished point of the grid, and print the table and the best point of each task."""
    from bertzoo.jobs import progress
    from bertzoo.jobs.record import JobRecord

    points, study = load(options)
    record = JobRecord(options.run_dir, points)
    code = run_list(options, record, points.jobs, study=study)
    if not options.list and not options.dry_run:
        for line in progress.sweep_lines(record):
            print(line)
        pruning = points.jobs[0].verb == "prune"
        say(f"next: bertzoo {f'report {record.path}/best/prune' if pruning else f'results {record.path}'}")
    return code
