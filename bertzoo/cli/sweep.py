"""Fine-tune over a grid of settings, one process per device; run the same command again to resume.

A sweep is a TOML file or the name of a shipped one: squeezebert and mobilebert are these papers' searches. Its [grid]
lists values for options of `bertzoo finetune`, [tasks.NAME] the differences of one task. Any other option is passed to
every run and replaces a list in the grid; --tasks.cola.from=MODEL applies to the runs of one task, and {task} in a
value stands for the task's name. With alpha = 1 --teacher is dropped.

Options, data and models are checked before the first run starts. Every point is a run in RUN/points with its output in
RUN/logs, and a line of RUN/sweep.csv. Finished points are skipped, failed and interrupted ones run again. SIGTERM or
Ctrl-C stops all runs with exit code 3; if a point fails the others continue, and the exit code is 1.

examples:
  bertzoo sweep squeezebert --tasks=rte,mrpc --data_dir=glue --from=runs/mnli --teacher='runs/teacher/{task}' \
--run_dir=runs/sweep
  bertzoo sweep mobilebert --data_dir=glue --from=runs/mobilebert --run_dir=runs/sweep --random=20 --processes=4
  bertzoo sweep mobilebert --data_dir=glue --from=runs/mobilebert --run_dir=runs/sweep --list
"""

import argparse
import shlex
from collections.abc import Sequence

from bertzoo.cli.support.points import (
    check_inputs,
    check_models,
    check_options,
    parse_count,
    parse_names,
    report_outcomes,
    run_points,
)

PASSES_ON = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("sweep", metavar="CONFIG", help="a TOML file or the name of a shipped sweep")
    parser.add_argument("--run_dir", required=True, metavar="RUN", help="the sweep's directory")
    parser.add_argument("--tasks", type=parse_names, default=(), metavar="A,B", help="only these tasks of the sweep")
    parser.add_argument(
        "--processes", type=parse_count, metavar="N", help="runs side by side (default: one per device)"
    )
    parser.add_argument("--random", type=parse_count, default=0, metavar="N", help="only N random points of each task")
    help_ = "seed of --random (default: 0); --seed is a run's"
    parser.add_argument("--random_seed", type=int, default=0, metavar="S", help=help_)
    parser.add_argument("--list", action="store_true", help="print the command of every point and run none")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Run every point that is not finished, and print the table and the best point of each task."""
    from bertzoo.finetuning.sweep import grid, slots
    from bertzoo.finetuning.sweep.record import Record

    sweep = grid.load_sweep(args.sweep, overrides, args.tasks)
    points = sweep.points(args.random, args.random_seed)
    record = Record(args.run_dir, points)
    check_options(record)
    if args.list:
        for point in points:
            print(shlex.join(["bertzoo", *point.arguments(record.run_dir(point))]))
        return 0
    check_inputs(record)
    check_models(record)
    environments = slots.device_environments(args.processes)
    with record.locked():
        record.claim(sweep.identity())
        run_points(record, environments)
    for line in record.lines():
        print(line)
    for task in dict.fromkeys(point.task for point in points):
        if (best := record.best(task)) is not None:
            score, where = record.finished[best.name].score, record.run_dir(best)
            print(f"best of {task}: {score:.2f} with {best.described()}, in {where}")
    return report_outcomes(record)
