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

import argparse
from collections.abc import Sequence
from functools import partial

from bertzoo.cli.support.jobs import job_options, parse_count, run_list
from bertzoo.cli.support.options import Parser, run_dir_option, say

PASSES_ON = (
    "Options and keys of `bertzoo finetune`, or of `bertzoo prune` for a pruning. `bertzoo config finetune` prints "
    "every key and its value."
)


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    parser.group("input").add_argument("sweep", metavar="CONFIG", help="a TOML file or the name of a shipped sweep")
    run_dir_option(parser, "the sweep's directory")
    job_options(parser, "points", "only these tasks, comma-separated (default: all tasks of the sweep)")
    points = parser.group("points")
    points.add_argument(
        "--random",
        type=partial(parse_count, "--random"),
        default=0,
        metavar="N",
        help="number of points per task, drawn at random from the grid (default: all)",
    )
    points.add_argument(
        "--random_seed", type=int, metavar="S", help="seed with which --random draws points (default: 0)"
    )


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Run every unfinished point of the grid, and print the table and the best point of each task."""
    from bertzoo.jobs import progress
    from bertzoo.jobs.record import JobRecord
    from bertzoo.jobs.sweep import load_sweep

    points = load_sweep(args.sweep, overrides, args.tasks).points(args.random, args.random_seed)
    record = JobRecord(args.run_dir, points)
    code = run_list(args, record, points.jobs)
    if not args.list and not args.dry_run:
        for line in progress.sweep_lines(record):
            print(line)
        pruning = points.jobs[0].verb == "prune"
        say(f"next: bertzoo {f'report {record.path}/best/prune' if pruning else f'results {record.path}'}")
    return code
