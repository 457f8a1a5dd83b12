"""Print fine-tuning runs as the papers' tables, beside the rows that the papers print.

A directory is a run or holds runs. Runs in one directory that start from one model make one row: for each task the run
with the best score, its median over the seeds, the lowest and the highest. Every row is marked as measured or quoted.
Without a directory the table has only the paper's rows. SQuAD has its own tables; schubert and
mobilebert_dev have columns of both. Runs on your own files (--task=own) have the table `own`, with a row for each.

--leaderboard=FILE adds a row with GLUE's leaderboard scores of a submission: a .csv with the header score,value and
lines such as mnli_matched/accuracy,82.0; its name becomes the row's.

examples:
  bertzoo results runs/glue
  bertzoo results runs/cola runs/rte --table=convbert_dev --latex
  bertzoo results runs/reviews runs/topics --table=own
  bertzoo results runs/squad1 runs/squad2 --table=mobilebert_squad
  bertzoo results --table=schubert --csv
  bertzoo results --table=squeezebert_test --leaderboard=mine.csv
"""

import argparse
from collections.abc import Sequence

from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    from bertzoo.finetuning.results.layouts import PAPER_TABLES
    from bertzoo.finetuning.results.rows import OWN

    parser.add_argument("directories", nargs="*", metavar="DIR", help="a fine-tuning run or a directory of runs")
    names = (*PAPER_TABLES, OWN)
    help_ = f"{', '.join(names)} (default: the first of these that has a column for a run)"
    parser.add_argument("--table", choices=names, metavar="TABLE", help=help_)
    help_ = "scores of a submission, as a row; may be repeated"
    parser.add_argument("--leaderboard", action="append", default=[], metavar="FILE", help=help_)
    formats = parser.add_mutually_exclusive_group()
    for name, help_ in (("latex", "a LaTeX tabular"), ("csv", "one line per number"), ("json", "one JSON object")):
        formats.add_argument(f"--{name}", dest="format", action="store_const", const=name, help=help_)
    parser.set_defaults(format="markdown")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Print the table; name damaged and unfinished runs, and fail if there is nothing else."""
    from bertzoo.core.paths import on_disk
    from bertzoo.finetuning.results import render, rows, runs, submitted
    from bertzoo.finetuning.results.layouts import PAPER_TABLES

    finished, left_out = runs.collect_runs(args.directories)
    files = [on_disk(name, "--leaderboard", "copy it to this machine") for name in args.leaderboard]
    submissions = [submitted.read_leaderboard(file) for file in files]
    layouts = {**PAPER_TABLES, rows.OWN: rows.own_layout(finished)}
    fitting = {
        name: [source for source in (*finished, *submissions) if rows.has_column(layout, source)]
        for name, layout in layouts.items()
    }
    name = args.table or next((name for name, sources in fitting.items() if sources), next(iter(fitting)))

    def advice(sources: Sequence[object]) -> str:
        """Where some of these have a column."""
        table = next((table for table, fit in fitting.items() if any(source in fit for source in sources)), None)
        return f"; choose --table={table}" if table not in (None, name) else ""

    for submission in submissions:
        if submission not in fitting[name]:
            raise UserError(f"--leaderboard={submission.path} has no score of the table {name}{advice([submission])}")
    table = rows.build_table(layouts[name], finished, submissions)
    for task in sorted({run.task for run in finished if run not in fitting[name]}):
        left_out.append(f"{task} has no score in the table {name}{advice([r for r in finished if r.task == task])}")
    if (args.directories or submissions) and not render.has_own_rows(table):
        raise UserError("; ".join(left_out))
    if not table.rows:
        raise UserError(f"--table={name} quotes no paper. Name a fine-tuning run on your own files.")
    for line in left_out:
        say(f"left out: {line}")
    print(render.FORMATS[args.format](table))
    if args.format == "csv":  # which has no place for them
        for note in table.notes:
            say(note)
    return 0
