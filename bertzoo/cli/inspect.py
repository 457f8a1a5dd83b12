"""Draw a model's attention maps, or a teacher's beside a student's.

Every attention head is a map: rows are queries, columns are keys, on one colour scale. With --teacher, each head of
the teacher stands above the student's head that matches it best; the command prints KL(teacher || student) of
each pair in nats, averaged over queries. --average draws one map per model, the mean over heads, layers and rows.
Layers and heads count from 1.

examples:
  bertzoo inspect attention runs/demo --out=attention.png
  bertzoo inspect attention runs/mobilebert --teacher=runs/ib_bert --text='The cat sat on the mat.' --out=heads.png
  bertzoo inspect attention bert-base-uncased --heldout=runs/first --rows=100 --average --out=average.png
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

from bertzoo.api.options import corpus_field
from bertzoo.cli.support.options import declare, json_field
from bertzoo.core.errors import UserError
from bertzoo.core.options import option

ROWS = 8


def _layers(text: str) -> tuple[tuple[int, int], ...]:
    pairs = [part.split(":") for part in text.split(",")]
    if all(len(pair) <= 2 and all(number.isdecimal() for number in pair) for pair in pairs):
        return tuple((int(pair[0]), int(pair[-1])) for pair in pairs)
    raise UserError(f"--layers={text} is not a list of layers. Write 1,12 or, with a teacher, 1:1,6:12.")


@dataclass(frozen=True)
class InspectFlags:
    """The command's flags."""

    what: Literal["attention"] = option("attention: draw attention maps")
    model: str = option(
        "a run, a checkpoint, a model or Hugging Face directory, a TensorFlow 1 checkpoint, or a URL of one of these",
        metavar="MODEL",
    )
    _: KW_ONLY
    teacher: str | None = option("the model to compare with (default: none)", None, metavar="MODEL")
    text: tuple[str, ...] | None = option(
        "a text for the models; repeatable (default: held-out rows)", None, metavar="TEXT", repeat=True
    )
    heldout: str | None = option("the run whose held-out rows the models read (default: MODEL)", None, metavar="RUN")
    corpus: str | None = corpus_field("input", "that run's corpus")
    rows: int | None = option(
        f"held-out rows to compare or average (default: {ROWS}; 1 with neither --teacher nor --average)",
        None,
        metavar="N",
    )
    layers: tuple[tuple[int, int], ...] | None = option(
        "layers to draw; 6:12 pairs the student's 6th layer with the teacher's 12th (default: layers 1 and 12, or "
        "the last layer of a shallower model; with --average, all layers)",
        None,
        group="drawing",
        metavar="N,…",
        parse=_layers,
    )
    average: bool = option("draw one map per model: the mean over heads, layers and rows", False, group="drawing")
    out: Path = option("the file to write", group="output", metavar="PNG")
    json: bool = json_field()


arguments = declare(InspectFlags)


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Draw the attention maps and, with a teacher, print how the student's maps differ from the teacher's."""
    _check_options(args)
    from bertzoo.runs import attention

    models = attention.open_models(args.model, args.teacher)
    student = models.get("student") or models["model"]
    if args.text:
        text = attention.encode_texts(args.text, student)
    else:
        rows = args.rows or (ROWS if args.teacher or args.average else 1)
        text = attention.heldout_rows(student, args.heldout, args.corpus, rows)
    layers = attention.choose_layers(models, args.layers, averaged=args.average)
    report = (attention.average_maps if args.average else attention.compare_heads)(models, layers, text)
    drawn = "" if args.average or len(text.rows) == 1 else " (the first is drawn)"
    title = "\n".join([*(f"{role}: {model.origin}" for role, model in models.items()), text.description + drawn])
    attention.draw(report.strips, title, report.tokens, args.out)
    if args.json:
        print(json.dumps({"out": str(args.out), "rows": len(text.rows), **report.document}))
    else:
        print("\n".join([*report.lines, *[""] * bool(report.lines), f"Wrote {args.out}."]))
    return 0


def _check_options(args: argparse.Namespace) -> None:
    if args.out.suffix != ".png":
        raise UserError(f"--out={args.out} is not a PNG file. Give a name that ends in .png.")
    if not args.out.parent.is_dir() or args.out.is_dir():
        raise UserError(f"--out={args.out} cannot be written. Name a file in a directory that exists.")
    for flag in ("heldout", "corpus", "rows"):
        if args.text and getattr(args, flag) is not None:
            raise UserError(f"--text and --{flag}={getattr(args, flag)} exclude each other. Leave one out.")
    if args.rows is not None and args.rows < 1:
        raise UserError(f"--rows={args.rows} is not a number of rows. Give at least 1.")
    rows = f"--rows={args.rows}" if (args.rows or 1) > 1 else f"{len(args.text or ())} times --text"
    if args.teacher is None and not args.average and max(args.rows or 1, len(args.text or ())) > 1:
        raise UserError(f"{rows}, but without --teacher or --average, only one row is drawn. Give one row.")
    if args.teacher is None and any(student != teacher for student, teacher in args.layers or ()):
        raise UserError(
            "--layers names layers of a teacher, but --teacher is missing. Add --teacher, or name single layers, as in "
            "1,12."
        )
