"""Fine-tune over a grid of settings, a process a device; run the same command again to resume.

A sweep is a TOML file or the name of a shipped one: squeezebert and mobilebert are the searches of these papers. Its
[grid] has a list of values for each option of `bertzoo finetune`, [tasks.NAME] what is different for one task. Any
other option is passed on to every run and takes the place of a list in the grid; --tasks.cola.from=MODEL is for the
runs of one task, and {task} in a value stands for the task's name. Where alpha is 1, --teacher is left out.

Options, data and models are checked before the first run begins. Every point is a run in RUN/points, and prints into
RUN/logs; a finished one is not run again, one that failed is, an interrupted one goes on. RUN/sweep.csv has a line a
point. SIGTERM or Ctrl-C stops all runs and ends with exit code 3; where a point failed the others go on, and the exit
code is 1 in the end.

examples:
  bertzoo sweep squeezebert --tasks=rte,mrpc --data_dir=glue --from=runs/mnli --teacher='runs/teacher/{task}' \
--run_dir=runs/sweep
  bertzoo sweep mobilebert --data_dir=glue --from=runs/mobilebert --run_dir=runs/sweep --random=20 --processes=4
  bertzoo sweep mobilebert --data_dir=glue --from=runs/mobilebert --run_dir=runs/sweep --list
"""

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bertzoo.cli.support.points import (
    check_inputs,
    check_models,
    check_options,
    parse_count,
    parse_names,
    report_outcomes,
    run_points,
)

if TYPE_CHECKING:
    from bertzoo.finetuning.sweep.record import Record

PASSES_ON = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("sweep", metavar="CONFIG", help="a TOML file or the name of a shipped sweep")
    parser.add_argument("--run_dir", required=True, metavar="RUN", help="where everything of the sweep goes")
    parser.add_argument("--tasks", type=parse_names, default=(), metavar="A,B", help="only these tasks of the sweep")
    parser.add_argument("--processes", type=parse_count, metavar="N", help="runs side by side (default: one a device)")
    parser.add_argument(
        "--random", type=parse_count, default=0, metavar="N", help="only N points of each task, drawn at random"
    )
    parser.add_argument(
        "--random_seed", type=int, default=0, metavar="S", help="draws other points (default: 0); --seed is a run's"
    )
    parser.add_argument("--list", action="store_true", help="print the command of every point and run none")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Run every point that is not finished, and print the table and the best of each task."""
    from bertzoo.finetuning.sweep import grid, slots
    from bertzoo.finetuning.sweep.record import Record

    sweep = grid.load(args.sweep, overrides, args.tasks)
    points = sweep.points(args.random, args.random_seed)
    record = Record(args.run_dir, points)
    check_options(record)
    if args.list:
        for point in points:
            print(shlex.join(["bertzoo", *point.arguments(record.run_dir(point))]))
        return 0
    check_inputs(record)
    check_models(record)
    environments = slots.slots(args.processes)
    with record.locked():
        record.claim(sweep.about())
        run_points(record, environments)
    return _told(record)


def _told(record: "Record") -> int:
    """Print the table and the best of each task, and give the exit code."""
    for line in record.lines():
        print(line)
    for task in dict.fromkeys(point.task for point in record.points):
        if (best := record.best(task)) is not None:
            score, where = record.finished[best.name].score, record.run_dir(best)
            print(f"best of {task}: {score:.2f} with {best.described()}, in {where}")
    return report_outcomes(record)
