"""Fine-tuning runs as the papers' tables, beside the rows that the papers print.

A directory is a run or holds runs. Those of one model in one directory, and what was fine-tuned from them, make one
row: of each task the run with the best score, its median over the seeds and the lowest and the highest. Every row says
whether it was measured here or is quoted. Without a directory the paper's rows stand alone. SQuAD has tables of its
own, or stands beside GLUE (schubert, mobilebert_dev).

With --leaderboard=FILE what GLUE's leaderboard has said of a submission is a row of a test sets' table: a .csv with the
header score,value and lines such as mnli_matched/accuracy,82.0, called as the row is to be.

examples:
  bertzoo results runs/glue
  bertzoo results runs/cola runs/rte --table=convbert_dev --latex
  bertzoo results runs/squad1 runs/squad2 --table=mobilebert_squad
  bertzoo results --table=schubert --csv
  bertzoo results --table=squeezebert_test --leaderboard=mine.csv
"""

import argparse
from collections.abc import Sequence

from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    from bertzoo.finetuning.results.layouts import LAYOUTS

    parser.add_argument("directories", nargs="*", metavar="DIR", help="a fine-tuning run or a directory of runs")
    parser.add_argument(
        "--table",
        choices=LAYOUTS,
        metavar="TABLE",
        help=f"{', '.join(LAYOUTS)} (default: the first of these that has a column for a run)",
    )
    parser.add_argument(
        "--leaderboard",
        action="append",
        default=[],
        metavar="FILE",
        help="scores of a submission, a row of its own; may be given several times",
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
    from bertzoo.core.paths import on_disk
    from bertzoo.finetuning.results import layouts, render, rows, runs, submitted

    found, wrong = runs.collect(args.directories)
    scored = [submitted.read(on_disk(name, "--leaderboard", "copy it to this machine")) for name in args.leaderboard]
    tables = {
        name: [each for each in (*found, *scored) if rows.stands_in(one, each)] for name, one in layouts.LAYOUTS.items()
    }
    name = args.table or next((name for name, those in tables.items() if those), next(iter(tables)))
    if strange := [one for one in scored if one not in tables[name]]:
        having = next((other for other, those in tables.items() if strange[0] in those), None)
        advice = f"choose --table={having}" if having else "no table has a column for what is in it"
        raise UserError(f"--leaderboard={strange[0].path} has no score of the table {name}: {advice}")
    table = rows.table(layouts.LAYOUTS[name], found, scored)
    others = []
    for task in sorted({run.task for run in found if run not in tables[name]}):
        of_task = [one for one in found if one.task == task]
        having = next((other for other, those in tables.items() if any(one in those for one in of_task)), None)
        advice = f"; choose --table={having}" if having not in (None, name) else ""
        others.append(f"{task} has no score in the table {name}{advice}")
    if (args.directories or scored) and not render.measured(table):
        raise UserError("; ".join([*wrong, *others]))
    for line in [*wrong, *others]:
        say(f"left out: {line}")
    print(render.FORMATS[args.format](table))
    if args.format == "csv":
        for note in table.notes:
            say(note)  # which a line a number has no place for
    return 0
