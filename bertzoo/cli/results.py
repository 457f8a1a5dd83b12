"""Print the scores of fine-tuning runs as a table.

Runs in one directory that start from the same model make a row; each run on your own files (--task=own) is a row. For
each task, the row shows the best run's median, lowest and highest score over the seeds.

examples:
  bertzoo results runs/glue
  bertzoo results runs/cola runs/rte --csv
  bertzoo results runs/sweep --json
"""

import argparse
from collections.abc import Sequence

from bertzoo.cli.support.options import Parser, say
from bertzoo.core.errors import UserError


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    parser.group("input").add_argument(
        "directories", nargs="+", metavar="DIR", help="a fine-tuning run or a directory of runs"
    )
    formats = parser.group("output").add_mutually_exclusive_group()
    for name, text in (("csv", "one line per score"), ("json", "one JSON document")):
        formats.add_argument(f"--{name}", dest="format", action="store_const", const=name, help=f"print {text}")
    parser.set_defaults(format="markdown")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Print the table, and list damaged and unfinished runs; raises UserError if there are only such runs."""
    from bertzoo.finetuning import results

    finished, left_out = results.collect_runs(args.directories)
    if not finished:
        raise UserError("; ".join(left_out))
    for line in left_out:
        say(f"left out: {line}")
    groups, notes = results.best_runs(finished)
    rows = results.build_rows(groups)
    if args.format == "csv":  # CSV has no place for notes
        print(results.as_csv(rows))
        for note in notes:
            say(note)
    else:
        print((results.as_json if args.format == "json" else results.as_markdown)(rows, notes))
    return 0
