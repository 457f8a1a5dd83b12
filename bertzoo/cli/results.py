"""Print the scores of fine-tuning runs as the papers' tables, beside published numbers.

Runs in one directory that start from the same model make a row. For each task, the row shows the best run's median,
lowest and highest score over the seeds. Every row is marked as measured or quoted. Without DIR, the table has only the
paper's rows.

examples:
  bertzoo results runs/glue
  bertzoo results runs/cola runs/rte --table=convbert_dev --csv
  bertzoo results --table=squeezebert_test --leaderboard=mine.csv
"""

import argparse
from collections.abc import Sequence

from bertzoo.cli.support.options import Parser, say
from bertzoo.core.errors import UserError


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    from bertzoo.finetuning.results.layouts import PAPER_TABLES
    from bertzoo.finetuning.results.rows import OWN

    inputs, output = parser.group("input"), parser.group("output")
    inputs.add_argument(
        "directories", nargs="*", default=[], metavar="DIR", help="a fine-tuning run or a directory of runs"
    )
    inputs.add_argument(
        "--leaderboard",
        action="append",
        default=[],
        metavar="FILE",
        help="add a row with the scores of a submission from FILE, a .csv with the header score,value and lines such "
        "as mnli_matched/accuracy,82.0; repeatable (default: none)",
    )
    names = (*PAPER_TABLES, OWN)
    output.add_argument(
        "--table",
        choices=names,
        metavar="TABLE",
        help=f"{', '.join(names)} (default: the first table with a column for one of the runs)",
    )
    formats = output.add_mutually_exclusive_group()
    for name, text in (("csv", "one line per number"), ("json", "one JSON document")):
        formats.add_argument(f"--{name}", dest="format", action="store_const", const=name, help=f"print {text}")
    parser.set_defaults(format="markdown")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Print the table, and list damaged and unfinished runs; raises UserError if there are only such runs."""
    from bertzoo.core.paths import on_disk
    from bertzoo.finetuning.results import render, rows, runs, submitted
    from bertzoo.finetuning.results.layouts import PAPER_TABLES

    finished, left_out = runs.collect_runs(args.directories)
    files = [on_disk(name, "--leaderboard", "Copy it to this machine.") for name in args.leaderboard]
    submissions = [submitted.read_leaderboard(file) for file in files]
    layouts = {**PAPER_TABLES, rows.OWN: rows.own_layout(finished)}
    fitting = {
        name: [source for source in (*finished, *submissions) if rows.has_column(layout, source)]
        for name, layout in layouts.items()
    }
    name = args.table or next((name for name, sources in fitting.items() if sources), next(iter(fitting)))

    def advice(sources: Sequence[object]) -> str:
        """Return a hint that names another table with a column for one of the sources; "" if there is none."""
        table = next((table for table, fit in fitting.items() if any(source in fit for source in sources)), None)
        return f"; choose --table={table}" if table not in (None, name) else ""

    for submission in submissions:
        if submission not in fitting[name]:
            raise UserError(
                f"--leaderboard={submission.path} has no score of the table {name}"
                f"{advice([submission]) or '. Leave the file out.'}"
            )
    table = rows.build_table(layouts[name], finished, submissions)
    for task in sorted({run.task for run in finished if run not in fitting[name]}):
        left_out.append(f"{task} has no score in the table {name}{advice([r for r in finished if r.task == task])}")
    if (args.directories or submissions) and not render.has_own_rows(table):
        raise UserError("; ".join(left_out))
    if not table.rows:
        raise UserError(f"--table={name} shows only runs on your own files, but no DIR is named. Add the DIR of a run.")
    for line in left_out:
        say(f"left out: {line}")
    print(render.FORMATS[args.format](table))
    if args.format == "csv":  # CSV has no place for notes
        for note in table.notes:
            say(note)
    return 0
