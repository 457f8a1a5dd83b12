"""Draw the curves of a run and write a page about it.

Writes loss.png, accuracy.png and report.md into RUN, which may still be training, and prints a sketch of the loss. A
pruning run also gets layers.png, the sizes left in each layer. A fine-tuning run gets scores.png instead of
accuracy.png.

--check compares the held-out losses with the golden curve of the shipped config (configs/curves). Exit code 0: the
losses match; 1: they differ; 2: the run has another corpus and cannot be compared.

examples:
  bertzoo report runs/first
  bertzoo report runs/demo --check
  bertzoo report runs/sst2
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.cli.support.options import Parser
from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    from bertzoo.core.kinds import Kind


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    parser.group("input").add_argument("run", metavar="RUN", help="the directory or gs:// URL of a run")
    parser.group("output").add_argument(
        "--check", action="store_true", help="only compare the losses with the golden curve; write nothing"
    )


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Write the report and print a sketch of the loss, or compare the run with its config's golden curve."""
    from bertzoo.core import kinds
    from bertzoo.core.paths import run_directory
    from bertzoo.runs.bucket import Bucket

    bucket = Bucket(args.run) if args.run.startswith("gs://") else None
    if bucket is not None:
        bucket.fetch()
    directory = bucket.directory if bucket else run_directory(args.run)
    kind = kinds.kind_of_run(directory) or kinds.KINDS["pretrain"]  # its report rejects a directory without a run
    if args.check:
        return _check(args.run, directory, kind)
    files, sketch = kind.report()(directory)
    if bucket is not None:
        bucket.send([str(path.relative_to(bucket.directory)) for path in files])
    print(sketch)
    print("Wrote " + ", ".join(f"{args.run.rstrip('/')}/{path.name}" for path in files) + ".")
    return 0


def _check(name: str, directory: Path, kind: "Kind") -> int:
    from bertzoo.core import config
    from bertzoo.core.kinds import config_class
    from bertzoo.runs.report import golden_curve, page

    if kind.model is not None:
        raise UserError(
            f"--check compares a pretraining run with its golden curve, but {name} is a run of bertzoo {kind.name}. "
            "Leave --check out."
        )
    recorded = golden_curve.records()
    shipped = {name: config.plain(config.load(config_class(name), [name])) for name in recorded}
    comparison = golden_curve.compare_with_golden_curve(page.read_run(directory), shipped, recorded)
    print(comparison, file=sys.stdout if comparison.on else sys.stderr)
    return 0 if comparison.on else 1
