"""Look into a model: `attention` draws its attention maps as a PNG, or those of a teacher and a student side by side.

Every head of the layers is a map: rows are queries, columns are keys. All maps share one colour scale, clipped at the
99.5th percentile. With --teacher, every head of the teacher stands above the student's head that the best
one-to-one matching assigns to it; the mean KL divergence of a query is printed in nats (MobileBERT Fig. 3 and Appendix
C). --average draws the mean over all heads, layers and rows instead (ConvBERT Fig. 2).

The models read --text, or unmasked held-out rows of a run. The maps show the first row; the matching and the average
cover all rows. Layers and heads are numbered from 1; ConvBERT's convolving heads have no map. A model is a run, a
checkpoint, a model directory, a Hugging Face directory or a TensorFlow 1 checkpoint.

examples:
  bertzoo inspect attention runs/demo --out=attention.png
  bertzoo inspect attention runs/mobilebert --teacher=runs/ib_bert --text='The cat sat on the mat.' --out=heads.png
  bertzoo inspect attention bert-base-uncased --heldout=runs/first --rows=100 --average --out=average.png
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from bertzoo.cli.support.options import corpus_option
from bertzoo.core.errors import UserError

ROWS = 8


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("what", choices=("attention",), help="what to look at")
    parser.add_argument("model", metavar="MODEL", help="the model, or the student")
    parser.add_argument("--teacher", metavar="MODEL", help="the model that it is compared with")
    parser.add_argument("--text", action="append", metavar="TEXT", help="what they read; may be given several times")
    parser.add_argument(
        "--heldout", metavar="RUN", help="read held-out rows of this run (default: of MODEL, if it is one)"
    )
    corpus_option(parser, "that run's corpus")
    parser.add_argument(
        "--rows",
        type=int,
        help=f"how many of them, of the first stage's length, to compare or average (default {ROWS})",
    )
    parser.add_argument(
        "--layers",
        type=_layers,
        metavar="N,…",
        help="the layers; 6:12 is the student's 6th and the teacher's 12th (default: the first, and the 12th or the "
        "last where there are fewer; all with --average)",
    )
    parser.add_argument("--average", action="store_true", help="one map: the mean over heads, layers and rows")
    parser.add_argument("--out", required=True, metavar="PNG", type=Path, help="the file to write")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def _layers(text: str) -> tuple[tuple[int, int], ...]:
    pairs = [part.split(":") for part in text.split(",")]
    if all(len(pair) <= 2 and all(number.isdecimal() for number in pair) for pair in pairs):
        return tuple((int(pair[0]), int(pair[-1])) for pair in pairs)
    raise UserError(f"--layers={text} is not a list of layers such as 1,12 or, with a teacher, 1:1,6:12")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Compute the maps, draw them and print the figures."""
    _check_options(args)
    from bertzoo.runs import inspect
    from bertzoo.runs.report import heatmaps

    models = inspect.open_models(args.model, args.teacher)
    student = models.get("student") or models["model"]
    if args.text:
        text = inspect.encode_texts(args.text, student)
    else:
        rows = args.rows or (ROWS if args.teacher or args.average else 1)
        text = inspect.heldout_rows(student, args.heldout, args.corpus, rows)
    layers = inspect.choose_layers(models, args.layers, averaged=args.average)
    report = (inspect.average_maps if args.average else inspect.compare_heads)(models, layers, text)
    drawn = "" if args.average or len(text.rows) == 1 else " (the first is drawn)"
    title = "\n".join([*(f"{role}: {model.origin}" for role, model in models.items()), text.description + drawn])
    heatmaps.draw(report.blocks, title, report.tokens, args.out)
    if args.json:
        print(json.dumps({"out": str(args.out), "rows": len(text.rows), **report.document}))
    else:
        print("\n".join([*report.lines, *[""] * bool(report.lines), f"Wrote {args.out}."]))
    return 0


def _check_options(args: argparse.Namespace) -> None:
    """Raise UserError for wrong options before any file is read."""
    if args.out.suffix != ".png":
        raise UserError(f"--out={args.out} is not a PNG file: give a name that ends in .png")
    if not args.out.parent.is_dir() or args.out.is_dir():
        raise UserError(f"--out={args.out} cannot be written: name a file in a directory that exists")
    for flag in ("heldout", "corpus", "rows"):
        if args.text and getattr(args, flag) is not None:
            raise UserError(f"--text and --{flag}={getattr(args, flag)} exclude each other: leave one out")
    if args.rows is not None and args.rows < 1:
        raise UserError(f"--rows={args.rows} is not a number of rows; give at least 1")
    rows = f"--rows={args.rows}" if (args.rows or 1) > 1 else f"{len(args.text or ())} times --text"
    if args.teacher is None and not args.average and max(args.rows or 1, len(args.text or ())) > 1:
        raise UserError(f"{rows}, but the maps show only one row: give one, or --teacher or --average")
    if args.teacher is None and any(student != teacher for student, teacher in args.layers or ()):
        raise UserError("--layers names layers of a teacher, but there is no --teacher")
