"""Convert a model to Hugging Face's format, or to a file for phones.

SRC is a run, RUN/checkpoints/STEP, a model or Hugging Face directory, a TensorFlow 1 checkpoint, or a URL of one of
these. DST must be new or empty; it appears once it is complete.

Files for phones are litert (NAME.tflite), mediapipe (NAME.tflite that takes a string, for MediaPipe's text tasks), onnx
(NAME.onnx), onnx-text (NAME.onnx that takes a string), executorch (NAME.pte), torch-export (NAME.pt2) and torchscript
(NAME.pt). FILE.json describes FILE; FILE.files/ has the card, the tokenizer and test data for apps. A file whose
outputs differ from the model's is not written.

examples:
  bertzoo convert runs/demo exported --to=huggingface --head=masked
  bertzoo convert bert-base-uncased bert --to=bertzoo
  bertzoo convert runs/sst2 sst2.tflite --to=litert --lengths=32,64,128 --precision=int8-dynamic
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from bertzoo.cli.support.options import Parser
from bertzoo.core.errors import UserError
from bertzoo.core.paths import Location, location, on_disk
from bertzoo.export.options import DIRECTORIES, EXAMPLES, FILES, HEADS, OUTPUTS, POOLINGS, PRECISIONS, ExportOptions


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    inputs, output = parser.group("input"), parser.group("output")
    inputs.add_argument("source", metavar="SRC", type=_source, help="the model; its format is detected")
    output.add_argument("destination", metavar="DST", type=_destination, help="the new directory or file")
    output.add_argument(
        "--to", required=True, metavar="FORMAT", help=f"the format of DST: {', '.join((*DIRECTORIES, *FILES))}"
    )
    output.add_argument(
        "--license", metavar="NAME", help="licence of the weights, for the card (default: SRC's licence)"
    )
    model = parser.group("model")
    model.add_argument(
        "--head",
        choices=HEADS,
        help="keep only this head; in replaced token detection, masked: the generator's, replaced: the discriminator's "
        "(default: all but the generator's)",
    )
    model.add_argument(
        "--leak_padding",
        action="store_true",
        help="let convolutions and trigrams see padding, as Hugging Face's classes do",
    )
    model.add_argument(
        "--size",
        type=partial(_count, "size", 64),
        metavar="N",
        help="first dimensions of a vector to keep (default: all)",
    )
    files = parser.group("files for phones")
    files.add_argument(
        "--lengths",
        type=_lengths,
        metavar="N,…",
        help="row lengths in tokens; mediapipe, executorch: only one; onnx, torch-export: one fixes the length "
        "(default: 128; onnx and torch formats: any length)",
    )
    files.add_argument(
        "--precision",
        metavar="NAME",
        help=f"precision of the weights: {', '.join(PRECISIONS)}; .pte: fp32, int8-dynamic; .onnx, .pt, .pt2: fp32 "
        "(default: fp32)",
    )
    files.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="for int8-static: texts or tab-separated pairs to calibrate on, one per line (default: none)",
    )
    files.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="vector of a model without a head (default: mean)",
    )
    files.add_argument(
        "--output",
        choices=OUTPUTS,
        help="numbers of a vector, for a model that embeds texts (default: float32)",
    )
    files.add_argument(
        "--examples",
        type=partial(_count, "examples", 500),
        metavar="N",
        help=f"development examples to score model and file on; 0: all (default: {EXAMPLES:,})",
    )
    files.add_argument(
        "--no-optimize",
        action="store_true",
        default=None,
        help="for .tflite: write the training graph unchanged",
    )
    files.add_argument(
        "--python",
        type=Path,
        metavar="FILE",
        help="for executorch: a Python that has executorch (default: this Python)",
    )


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(length) for length in text.split(","))
    except ValueError:
        raise UserError(f"--lengths={text} is not a list of whole numbers. Write, say, --lengths=32,128.") from None


def _count(option: str, usual: int, text: str) -> int:
    if not text.isdecimal():
        raise UserError(
            f"--{option}={text} is not a whole number of 0 or more. Write, for example, --{option}={usual}."
        )
    return int(text)


def _source(text: str) -> Location:
    return location(text, "SRC =", "Write :// after the protocol.")


def _destination(text: str) -> Path:
    return on_disk(text, "DST =", "Name a local path and copy the result.")


def options(args: argparse.Namespace) -> ExportOptions:
    """Return the options of a conversion; raises UserError if they do not fit together."""
    return ExportOptions(**{field.name: getattr(args, field.name) for field in fields(ExportOptions)})


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Convert the model; print a summary and, for a file, its errors and scores."""
    from bertzoo.benchmarking.interleave import memory_of_file
    from bertzoo.export.convert import convert

    model, description, written = convert(args.source, args.destination, options(args), memory_of_file)
    verb = "Wrote" if written else "Kept"
    summary = (
        f"{verb} {args.destination}: {model.model.kind}, head {model.head.kind}, {model.parameter_count:,} parameters."
    )
    if description is not None:
        print("\n".join(_measurements(description)))
        size, memory = (f"{description[key] / 1e6:,.1f} MB" for key in ("bytes", "memory"))
        summary += f" {description['precision']}, {size}, {memory} of memory when it runs."
    print(summary)
    return 0


def _measurements(description: dict[str, Any]) -> Iterator[str]:
    """Yield lines with the file's errors, the scores of file and model, and how many nodes XNNPACK runs."""
    from bertzoo.tasks.metrics import is_threshold

    for name, signature in description["signatures"].items():
        for output, errors in signature["outputs"].items():
            yield (
                f"{name}: {output} of {signature['rows']} rows: largest error {errors['max_error']:.2g} of values up "
                f"to {errors['largest']:.3g}, cosine {errors['cosine']:.6f}"
            )
    if scores := description["scores"]:
        for name, points in scores["file"].items():
            if not is_threshold(name):
                model = scores["model"][name]
                yield f"{scores['task']}, {scores['split']}: {name} {points:.2f}, the model's {model:.2f}"
    if proof := description.get("mediapipe") or description.get("text"):
        differ, left = (len(proof[key]) for key in ("differences", "prepared_differences"))
        tokenizer = f"MediaPipe's {proof['task']}" if "task" in proof else "onnxruntime-extensions"
        yield (
            f"{tokenizer}: {proof['texts']} texts, largest difference {proof['largest_difference']:.2g}. Of "
            f"{proof['tricky']} texts with unusual characters, {differ} are tokenised differently, and {left} if the "
            "app prepares them (see the card)."
        )
    if "delegated" in description:
        runs, nodes, parts = (description[name] for name in ("delegated", "nodes", "delegates"))
        yield f"XNNPACK runs {runs} of the graph's {nodes} nodes, in {parts} parts"
