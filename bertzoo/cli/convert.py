"""Convert a model to another format: the format of SRC is detected, --to sets that of DST.

SRC is a run, one of its checkpoints (RUN/checkpoints/STEP), a model directory that this verb wrote, a Hugging Face
directory, or an original TensorFlow 1 checkpoint of BERT, MobileBERT, ELECTRA or ConvBERT (its directory, or the prefix
of its files), which needs TensorFlow. DST must not exist or be empty; it appears once it is complete. What transformers
has no class for (IB-BERT, schuBERT, combinations) becomes tensors, config.json and modeling_bertzoo.py, a PyTorch
module that loads them and needs neither transformers nor bertzoo; --to=pytorch writes this of any model.

Files for phones read one sentence at a time: --to=litert (NAME.tflite), torch-export (NAME.pt2), torchscript (NAME.pt),
onnx (NAME.onnx), executorch (NAME.pte, for XNNPACK). FILE.json describes FILE, and FILE.files/ has the
tokenizer's files and golden.json, to test an app with. The file is run in its own runtime and compared with
the model before it appears; one that differs, or gives NaN, is not written. --lengths: litert has a
signature length_N for each; torch-export and onnx read rows of the one that is named or, if several or none are, of any
length up to the model's positions, and are verified at those named; torchscript reads any and is verified at them;
executorch reads one.

examples:
  bertzoo convert runs/demo exported --to=huggingface --head=masked
  bertzoo convert bert-base-uncased bert --to=bertzoo
  bertzoo convert bert-base-uncased encoder --to=bertzoo --head=none
  bertzoo convert uncased_L-12_H-768_A-12/bert_model.ckpt bert --to=bertzoo
  bertzoo convert runs/sst2 sst2.tflite --to=litert --lengths=32,64,128 --precision=int8-dynamic
  bertzoo convert runs/sst2 sst2.onnx --to=onnx
  bertzoo convert runs/sst2 sst2.pte --to=executorch --lengths=128 --python=.venv-executorch/bin/python
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk
from bertzoo.export.options import DIRECTORIES, EXAMPLES, FILES, HEADS, POOLINGS, PRECISIONS, ExportOptions


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("source", metavar="SRC", type=_source, help="the model")
    parser.add_argument("destination", metavar="DST", type=_destination, help="the new directory, or file")
    formats = ", ".join((*DIRECTORIES, *FILES))
    parser.add_argument("--to", required=True, metavar="FORMAT", help=f"the format of DST: {formats}")
    parser.add_argument(
        "--head",
        choices=HEADS,
        help="keep only this: none, the backbone alone; masked, the masked language model head without a sentence "
        "head, or the generator of replaced token detection; replaced, its discriminator (the default there)",
    )
    parser.add_argument(
        "--leak_padding",
        action="store_true",
        help="let convolutions and trigrams see padding, which a model trained without it (mask_padding) needs for "
        "Hugging Face; rows without padding give the same outputs",
    )
    parser.add_argument("--lengths", type=_lengths, help="file: tokens in a row (default: 128, or any)")
    parser.add_argument("--precision", choices=PRECISIONS, help="file: of the weights (default: fp32; others: litert)")
    parser.add_argument(
        "--calibration",
        type=Path,
        help="litert, int8-static: a file of texts that sets the scales, one per line, a tab within a pair",
    )
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="file without a head: the mean of the tokens' states (the default) or the pooled first one",
    )
    parser.add_argument(
        "--examples",
        type=_count,
        help="of a fine-tuned model's development set, evenly drawn, to score the file and the model on "
        f"(default: {EXAMPLES:,}; 0: all)",
    )
    parser.add_argument("--no-optimize", action="store_true", default=None, help="litert: keep the training graph")
    parser.add_argument("--license", help="of the weights, for the card (default: what the source's directory states)")
    parser.add_argument("--python", type=Path, help="executorch: a Python that has its packages (default: this one)")


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(length) for length in text.split(","))
    except ValueError:
        raise UserError(f"--lengths = {text} is not numbers with commas between, as in --lengths=32,128") from None


def _count(text: str) -> int:
    if not text.isdecimal():
        raise UserError(f"--examples = {text} is no number, as in --examples=500")
    return int(text)


def _source(text: str) -> Path:
    return on_disk(text, "SRC =", "copy the model to this machine and name the copy")


def _destination(text: str) -> Path:
    return on_disk(text, "DST =", "name a directory, and copy that")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Convert, and print the errors and scores of a file."""
    from bertzoo.benchmarking.interleave import memory_of_file
    from bertzoo.export.convert import convert

    options = ExportOptions(**{field.name: getattr(args, field.name) for field in fields(ExportOptions)})
    model, description = convert(args.source, args.destination, options, say, memory_of_file)
    summary = (
        f"Wrote {args.destination}: {model.model.kind}, head {model.head.kind}, {model.parameter_count:,} parameters."
    )
    if description is not None:
        print("\n".join(_measurements(description)))
        size, memory = (f"{description[key] / 1e6:,.1f} MB" for key in ("bytes", "memory"))
        summary += f" {description['precision']}, {size}, {memory} of memory when it runs."
    print(summary)
    return 0


def _measurements(description: dict[str, Any]) -> Iterator[str]:
    """Lines with the errors against the model, the scores of both, and what XNNPACK runs."""
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
    if "delegated" in description:
        runs, nodes, parts = (description[name] for name in ("delegated", "nodes", "delegates"))
        yield f"XNNPACK runs {runs} of the graph's {nodes} nodes, in {parts} parts"
