"""List the runs in a folder or bucket: state, step, loss and last sign of life.

A run is running while its process holds the run's lock, else it is finished, stopped (by a signal), failed (a loss was
not finite), interrupted, or damaged (its config or log cannot be read). In a bucket, which has no locks, a run without
an end counts as running for ten minutes after its last sign of life. The loss is the newest held-out loss or, without
one, the training loss.

With --stalled, the exit code is 1 if a run needs a person: it is stalled, failed, interrupted or damaged, and 2 if the
list fails. A timer such as cron can call it.

examples:
  bertzoo runs runs
  bertzoo runs gs://bucket/runs --stalled=15
  bertzoo runs runs --json
"""

import json
import time
from dataclasses import KW_ONLY, dataclass

from bertzoo.cli.support import json_field
from bertzoo.core.options import option


@dataclass(frozen=True)
class RunsFlags:
    folder: str = option("a folder, or its gs:// URL", metavar="DIR")
    _: KW_ONLY
    stalled: float | None = option(
        "minutes without a sign of life after which a running run is stalled (default: no alerts)",
        None,
        metavar="MINUTES",
        least=0,
    )
    json: bool = json_field("print a JSON array of the runs")


def main(options: RunsFlags) -> int:
    from bertzoo.core.tables import aligned
    from bertzoo.runs.report import list_runs
    from bertzoo.train.progress import duration

    runs, now = list_runs(options.folder), time.time()
    alerts = {} if options.stalled is None else {run.name: run.alert(60 * options.stalled) for run in runs}
    if options.json:
        print(json.dumps([run._asdict() | ({"alert": alerts[run.name]} if alerts else {}) for run in runs], indent=1))
    else:
        rows = []
        for run in runs:
            step = "" if run.step is None else f"{run.step:,}" + (f" of {run.steps:,}" if run.steps else "")
            loss = "" if run.loss is None else f"{run.loss:.4f}"
            state = alerts.get(run.name) or run.state
            rows.append([run.name, run.kind, state, step, loss, f"{duration(now - run.seen)} ago"])
        print("\n".join(aligned([["run", "kind", "state", "step", "loss", "last sign"], *rows])))
    return 1 if any(alerts.values()) else 0
