"""Draw the curves of a run, write a page about it, and sketch its loss here.

Writes loss.png, accuracy.png and report.md into the run's directory, which may still be running.

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

    run = report.open_run(args.run)
    page = run.directory / "report.md"
    written = [*curves.draw(run), page]
    page.write_text(report.page(run), encoding="utf-8")
    print(report.sketch(run.history))
    if run.history.torn:
        print("The last line of metrics.jsonl was cut off and is left out.")
    print(f"Wrote {', '.join(str(path) for path in written)}.")
    return 0
