"""Draw a model's attention maps, or a teacher's beside a student's.

Every attention head is a map: rows are queries, columns are keys, on one colour scale. With --teacher, each head of
the teacher stands above the student's head that matches it best. For each layer, the command prints the mean
KL(teacher || student) of the matched heads and of any two heads, over the queries of all texts; --json has that of
every pair. Layers and heads count from 1.

examples:
  bertzoo inspect attention runs/demo --text='The cat sat on the mat.' --out=attention.png
  bertzoo inspect attention runs/mobilebert --teacher=runs/ib_bert --text='The cat sat on the mat.' --out=heads.png
  bertzoo inspect attention bert-base-uncased --text='The cat sat.' --layers=1 --out=layer.png
"""

import json
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

from bertzoo.cli.support import json_field
from bertzoo.core.errors import UserError, needs_extra
from bertzoo.core.options import option


def _layers(text: str) -> tuple[tuple[int, int], ...]:
    pairs = [part.split(":") for part in text.split(",")]
    if all(len(pair) <= 2 and all(number.isdecimal() for number in pair) for pair in pairs):
        return tuple((int(pair[0]), int(pair[-1])) for pair in pairs)
    raise UserError(f"--layers={text} is not a list of layers. Write 1,12 or, with a teacher, 1:1,6:12.")


@dataclass(frozen=True)
class InspectFlags:
    what: Literal["attention"] = option("attention: draw attention maps")
    model: str = option(
        "a run, a checkpoint, a model or Hugging Face directory, a TensorFlow 1 checkpoint, or a URL of one of these",
        metavar="MODEL",
    )
    _: KW_ONLY
    teacher: str | None = option("the model to compare with (default: none)", None, metavar="MODEL")
    text: tuple[str, ...] = option(
        "a text for the models; repeatable with --teacher, where the first is drawn", metavar="TEXT", repeat=True
    )
    layers: tuple[tuple[int, int], ...] | None = option(
        "layers to draw; 6:12 pairs the student's 6th layer with the teacher's 12th (default: layers 1 and 12, or "
        "the last layer of a shallower model)",
        None,
        group="drawing",
        metavar="N,…",
        parse=_layers,
    )
    out: Path = option("the file to write", group="output", metavar="PNG")
    json: bool = json_field()


def main(options: InspectFlags) -> int:
    _check_options(options)
    with needs_extra(f"--out={options.out}", "plots"):
        import matplotlib  # noqa: F401
    from bertzoo.runs import attention

    models = attention.open_models(options.model, options.teacher)
    student = models.get("student") or models["model"]
    rows, description, tokens = attention.encode_texts(options.text, student)
    strips, document = attention.compare_heads(models, attention.choose_layers(models, options.layers), rows)
    title = "\n".join([*(f"{role}: {model.origin}" for role, model in models.items()), description])
    attention.draw(strips, title, tokens, options.out)
    if options.json:
        print(json.dumps({"out": str(options.out), "rows": len(rows), **document}))
        return 0
    for layer in document["layers"] if options.teacher else ():
        print(
            f"teacher's layer {layer['teacher']} and student's layer {layer['student']}: KL of matched heads "
            f"{layer['matched_kl']:.4f} nats on average, of any two {layer['any_kl']:.4f}"
        )
    print(f"Wrote {options.out}.")
    return 0


def _check_options(options: InspectFlags) -> None:
    if options.out.suffix != ".png":
        raise UserError(f"--out={options.out} is not a PNG file. Give a name that ends in .png.")
    if not options.out.parent.is_dir() or options.out.is_dir():
        raise UserError(f"--out={options.out} cannot be written. Name a file in a directory that exists.")
    if options.teacher is None and len(options.text) > 1:
        raise UserError(
            f"{len(options.text)} times --text, but without --teacher only one text is drawn. Give one text."
        )
    if options.teacher is None and any(student != teacher for student, teacher in options.layers or ()):
        raise UserError(
            "--layers names layers of a teacher, but --teacher is missing. Add --teacher, or name layers as in 1,12."
        )
