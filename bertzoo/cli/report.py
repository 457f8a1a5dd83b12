"""Draw the curves of a run, write a page about it, and sketch its loss here.

Writes loss.png, accuracy.png and report.md into the run's directory, which may still be running; of a pruning also
layers.png, the sizes that are left across the layers.

With --check it writes nothing and compares the held-out losses with the golden curve of the shipped config that the run
is of (configs/curves): exit code 0 where they are on it, 1 where they are not, 2 where nothing can be compared, as the
corpus is another.

examples:
  bertzoo report runs/first
  bertzoo report runs/demo --check
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertzoo.runs.report.page import RunRecord


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("run", metavar="RUN", help="the directory of a run, as given to --run_dir")
    parser.add_argument(
        "--check", action="store_true", help="only say whether the run's losses are those that its config has elsewhere"
    )


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Write the report and print the sketch."""
    from bertzoo.runs.bucket import Bucket
    from bertzoo.runs.report import curves
    from bertzoo.runs.report import page as report

    mirror = Bucket(args.run) if args.run.startswith("gs://") else None
    if mirror is not None:
        mirror.fetch()
    run = report.read_run(mirror.directory if mirror else args.run)
    if args.check:
        return _check(run)
    page = run.directory / "report.md"
    written = [*curves.draw_curves(run), page]
    page.write_text(report.page(run), encoding="utf-8")
    if mirror is not None:
        mirror.send([str(path.relative_to(mirror.directory)) for path in written])
    print(report.sketch(run.history))
    if run.history.torn:
        print("The last line of metrics.jsonl was cut off and is left out.")
    where = f"{args.run.rstrip('/')}/"
    print(f"Wrote {', '.join(where + path.name for path in written)}.")
    return 0


def _check(run: "RunRecord") -> int:
    """Say whether a run is on its golden curve."""
    from bertzoo.core import config
    from bertzoo.runs import kind
    from bertzoo.runs.report import golden_curve

    recorded = golden_curve.records()
    shipped = {name: config.plain(config.load(kind.recipe_class(name), [name])) for name in recorded}
    found = golden_curve.compare_with_golden_curve(run, shipped, recorded)
    print(found, file=sys.stdout if found.on else sys.stderr)
    return 0 if found.on else 1
