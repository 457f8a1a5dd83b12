"""Fine-tuning runs as the papers' tables, beside the rows that the papers print.

A directory is a run or holds runs. Those of one model in one directory, and what was fine-tuned from them, make one
row: of each task the run with the best score, its median over the seeds and the lowest and the highest. Every row says
whether it was measured here or is quoted. Without a directory the paper's rows stand alone.

examples:
  bertzoo results runs/glue
  bertzoo results runs/cola runs/rte --table=convbert_dev --latex
  bertzoo results --table=schubert --csv
"""

import argparse
from collections.abc import Sequence

from bertzoo.errors import UserError
from bertzoo.verbs.shared import say


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    from bertzoo.results.layouts import LAYOUTS

    parser.add_argument("directories", nargs="*", metavar="DIR", help="a fine-tuning run or a directory of runs")
    parser.add_argument(
        "--table",
        choices=LAYOUTS,
        default="squeezebert_dev",
        metavar="TABLE",
        help=f"{', '.join(LAYOUTS)} (default: squeezebert_dev)",
    )
    formats = parser.add_mutually_exclusive_group()
    for name, what in (
        ("latex", "a tabular for LaTeX"),
        ("csv", "a line a number"),
        ("json", "an object on standard output"),
    ):
        formats.add_argument(f"--{name}", dest="format", action="store_const", const=name, help=what)
    parser.set_defaults(format="markdown")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Print the table; what is damaged or unfinished is named, and is an error where nothing else is there."""
    from bertzoo.results import layouts, render, rows, runs

    layout = layouts.LAYOUTS[args.table]
    found, wrong = runs.collect(args.directories)
    table = rows.table(layout, found)
    if args.directories and not render.measured(table):
        tasks = sorted({run.task for run in found})
        other = f"{', '.join(tasks)} has no score in the table {args.table}; choose another --table" if tasks else ""
        raise UserError("; ".join([*wrong, *([other] if other else [])]))
    for line in wrong:
        say(f"left out: {line}")
    print(render.FORMATS[args.format](table))
    return 0
