"""Fine-tuning runs as the papers' tables, beside the rows that the papers print.

A directory is a run or holds runs. Those of one model in one directory, and what was fine-tuned from them, make one
row: of each task the run with the best score, its median over the seeds and the lowest and the highest. Every row says
whether it was measured here or is quoted. Without a directory the paper's rows stand alone. SQuAD has tables of its
own, or stands beside GLUE (schubert, mobilebert_dev).

examples:
  bertzoo results runs/glue
  bertzoo results runs/cola runs/rte --table=convbert_dev --latex
  bertzoo results runs/squad1 runs/squad2 --table=mobilebert_squad
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
        metavar="TABLE",
        help=f"{', '.join(LAYOUTS)} (default: the first of these that has a column for a run)",
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

    found, wrong = runs.collect(args.directories)
    tables = {name: [run for run in found if rows.stands_in(one, run)] for name, one in layouts.LAYOUTS.items()}
    name = args.table or next((name for name, those in tables.items() if those), next(iter(tables)))
    table = rows.table(layouts.LAYOUTS[name], found)
    others = []
    for task in sorted({run.task for run in found if run not in tables[name]}):
        having = next((other for other, those in tables.items() if task in [run.task for run in those]), None)
        advice = f"; choose --table={having}" if having not in (None, name) else ""
        others.append(f"{task} has no score in the table {name}{advice}")
    if args.directories and not render.measured(table):
        raise UserError("; ".join([*wrong, *others]))
    for line in [*wrong, *others]:
        say(f"left out: {line}")
    print(render.FORMATS[args.format](table))
    return 0
