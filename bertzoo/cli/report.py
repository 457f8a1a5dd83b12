"""Draw the curves of a run, write a page about it, and sketch its loss here.

Writes loss.png, accuracy.png and report.md into the run's directory, which may still be running; for a pruning run also
layers.png, the remaining sizes of each layer. A fine-tuning run gets scores.png in place of accuracy.png.

With --check it writes nothing and compares the held-out losses with the golden curve of the run's shipped config
(configs/curves). Exit code 0: they match; 1: they differ; 2: they cannot be compared, because the corpus is another.

examples:
  bertzoo report runs/first
  bertzoo report runs/demo --check
  bertzoo report runs/sst2
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bertzoo.core.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("run", metavar="RUN", help="the directory of a run, as given to --run_dir")
    parser.add_argument("--check", action="store_true", help="only compare the run's losses with its golden curve")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Write the report and print the sketch, or compare the run with its golden curve."""
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
            f"--check compares a pretraining run with its golden curve, but {args.run} is a fine-tuning run"
        )
    files, sketch = write_report(Path(args.run))
    print(sketch)
    _print_files(args.run, files)
    return 0


def _print_files(run: str, files: Sequence[Path]) -> None:
    names = (f"{run.rstrip('/')}/{path.name}" for path in files)
    print(f"Wrote {', '.join(names)}.")
