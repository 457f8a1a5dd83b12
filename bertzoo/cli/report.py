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

from bertzoo.cli.support.options import Parser
from bertzoo.core.errors import UserError


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    parser.group("input").add_argument("run", metavar="RUN", help="the directory or gs:// URL of a run")
    parser.group("output").add_argument(
        "--check", action="store_true", help="only compare the losses with the golden curve; write nothing"
    )


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Write the report and print a sketch of the loss, or compare the run with its config's golden curve."""
    from bertzoo.core import config
    from bertzoo.runs import kind
    from bertzoo.runs.bucket import Bucket
    from bertzoo.runs.report import curves, golden_curve
    from bertzoo.runs.report import page as report

    if kind.kind_of(Path(args.run) / "config.toml") == "finetune":
        return _finetuned(args)
    bucket = Bucket(args.run) if args.run.startswith("gs://") else None
    if bucket is not None:
        bucket.fetch()
    run = report.read_run(bucket.directory if bucket else args.run)
    if args.check:
        recorded = golden_curve.records()
        shipped = {name: config.plain(config.load(kind.recipe_class(name), [name])) for name in recorded}
        comparison = golden_curve.compare_with_golden_curve(run, shipped, recorded)
        print(comparison, file=sys.stdout if comparison.on else sys.stderr)
        return 0 if comparison.on else 1
    page = run.directory / "report.md"
    files = [*curves.draw_curves(run), page]
    page.write_text(report.page(run), encoding="utf-8")
    if bucket is not None:
        bucket.send([str(path.relative_to(bucket.directory)) for path in files])
    print(report.sketch(run.history))
    if run.history.torn:
        print("The last line of metrics.jsonl is incomplete and was skipped.")
    _print_files(args.run, files)
    return 0


def _finetuned(args: argparse.Namespace) -> int:
    from bertzoo.finetuning.report import write_report

    if args.check:
        raise UserError(
            f"--check compares a pretraining run with its golden curve, but {args.run} is a fine-tuning run. Leave "
            "--check out."
        )
    files, sketch = write_report(Path(args.run))
    print(sketch)
    _print_files(args.run, files)
    return 0


def _print_files(run: str, files: Sequence[Path]) -> None:
    names = (f"{run.rstrip('/')}/{path.name}" for path in files)
    print(f"Wrote {', '.join(names)}.")
