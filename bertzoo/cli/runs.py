"""List the runs in a folder or bucket: state, step, loss and last sign of life.

A run is running while its process holds the run's lock, else it is finished, stopped (by a signal), paused (before its
last step), failed (a loss was not finite), interrupted, or damaged (its config cannot be read). In a bucket, which has
no locks, a run without an end counts as running for ten minutes after its last sign of life. The loss is the newest
held-out loss or, without one, the training loss.

examples:
  bertzoo runs runs
  bertzoo runs gs://bucket/runs
  bertzoo runs runs --json
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from bertzoo.cli.support.options import declare, json_field
from bertzoo.core.options import option


@dataclass(frozen=True)
class RunsFlags:
    """The command's flags."""

    folder: str = option("a folder, or its gs:// URL", metavar="DIR")
    _: KW_ONLY
    json: bool = json_field("print a JSON array of the runs")


arguments = declare(RunsFlags)


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Print a line for each run."""
    from bertzoo.core.tables import aligned
    from bertzoo.runs.listing import list_runs
    from bertzoo.train.progress import duration

    runs = list_runs(args.folder)
    if args.json:
        print(json.dumps([run._asdict() for run in runs], indent=1))
        return 0
    rows = []
    for run in runs:
        step = "" if run.step is None else f"{run.step:,}" + (f" of {run.steps:,}" if run.steps else "")
        loss = "" if run.loss is None else f"{run.loss:.4f}"
        rows.append([run.name, run.kind, run.state, step, loss, f"{duration(time.time() - run.seen)} ago"])
    print("\n".join(aligned([["run", "kind", "state", "step", "loss", "last sign"], *rows])))
    return 0
