"""Print the scores of fine-tuning runs as a table.

Runs in one directory that start from the same model make a row; each run on your own files (--task=own) is a row. For
each task, the row shows the best run's median, lowest and highest score over the seeds.

examples:
  bertzoo results runs/glue
  bertzoo results runs/cola runs/rte
  bertzoo results runs/sweep --json
"""

from dataclasses import KW_ONLY, dataclass

from bertzoo.cli.support import json_field, log
from bertzoo.core.errors import UserError
from bertzoo.core.options import option


@dataclass(frozen=True)
class ResultsFlags:
    directories: tuple[str, ...] = option("a fine-tuning run or a directory of runs", metavar="DIR")
    _: KW_ONLY
    json: bool = json_field("print one JSON document")


def main(options: ResultsFlags) -> int:
    """Print the table, and list damaged and unfinished runs; raises UserError if there are only such runs."""
    from bertzoo.finetuning import results

    finished, left_out = results.collect_runs(options.directories)
    if not finished:
        raise UserError("; ".join(left_out))
    for line in left_out:
        log(f"left out: {line}")
    groups, notes = results.best_runs(finished)
    rows = results.build_rows(groups)
    print((results.as_json if options.json else results.as_markdown)(rows, notes))
    return 0
