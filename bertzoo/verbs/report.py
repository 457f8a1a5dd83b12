"""Draw the curves of a run, write a page about it, and sketch its loss here.

Writes loss.png, accuracy.png and report.md into the run's directory, which may still be running; of a pruning also
layers.png, the sizes that are left across the layers.

example:
  bertzoo report runs/first
"""

import argparse
from collections.abc import Sequence


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("run", metavar="RUN", help="the directory of a run, as given to --run_dir")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Write the report and print the sketch."""
    from bertzoo import curves, report
    from bertzoo.mirror import Mirror

    mirror = Mirror(args.run) if args.run.startswith("gs://") else None
    if mirror is not None:
        mirror.fetch()
    run = report.open_run(mirror.directory if mirror else args.run)
    page = run.directory / "report.md"
    written = [*curves.draw(run), page]
    page.write_text(report.page(run), encoding="utf-8")
    if mirror is not None:
        mirror.send([str(path.relative_to(mirror.directory)) for path in written])
    print(report.sketch(run.history))
    if run.history.torn:
        print("The last line of metrics.jsonl was cut off and is left out.")
    where = f"{args.run.rstrip('/')}/"
    print(f"Wrote {', '.join(where + path.name for path in written)}.")
    return 0
