"""Turn a model into another format: what SRC is it says itself, --to says what DST becomes.

SRC is a run, one of its checkpoints (RUN/checkpoints/STEP), a model directory that this verb wrote, a Hugging Face
directory, or an original TensorFlow 1 checkpoint of BERT, MobileBERT, ELECTRA or ConvBERT (its directory, or what its
files begin with), for which TensorFlow must be installed. DST must not exist, or be empty; it is complete once it is
there. What transformers has no class for (IB-BERT, schuBERT, combinations) becomes tensors, config.json and
modeling_bertzoo.py, a PyTorch module that loads them and needs neither transformers nor bertzoo; --to=pytorch writes
this of any model.

Files for phones read one sentence at a time: --to=litert (NAME.tflite), torch-export (NAME.pt2), torchscript (NAME.pt),
onnx (NAME.onnx), executorch (NAME.pte, for XNNPACK). Beside one stand NAME.json, which says what it is, and NAME.files/
with the tokenizer's files and golden.json, which an app is tested with. It is run in its own runtime and measured
against the model before it is there; one that differs, or gives NaN, is not written. --lengths: litert has a signature
length_N for each; torch-export and onnx read rows of the one that is named or, where several or none are, of any length
up to the model's positions, and are measured at those named; torchscript reads any and is measured at them; executorch
reads one.

examples:
  bertzoo convert runs/demo exported --to=huggingface
  bertzoo convert bert-base-uncased bert --to=bertzoo
  bertzoo convert bert-base-uncased encoder --to=bertzoo --head=none
  bertzoo convert uncased_L-12_H-768_A-12/bert_model.ckpt bert --to=bertzoo
  bertzoo convert runs/sst2 sst2.tflite --to=litert --lengths=32,64,128 --precision=int8-dynamic
  bertzoo convert runs/sst2 sst2.onnx --to=onnx
  bertzoo convert runs/sst2 sst2.pte --to=executorch --lengths=128 --python=.venv-executorch/bin/python
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.cli.support import phone_export
from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk

if TYPE_CHECKING:
    from bertzoo.conversion.pretrained import Pretrained

DIRECTORIES = ("huggingface", "bertzoo", "pytorch")
# Which formats an option is of.
OPTIONS = {
    "lengths": phone_export.FORMATS,
    "precision": phone_export.FORMATS,
    "pooling": phone_export.FORMATS,
    "examples": phone_export.FORMATS,
    "calibration": ("litert",),
    "no_optimize": ("litert",),
    "python": ("executorch",),
}
PRECISIONS = ("fp32", "fp16", "int8-dynamic", "int8-static", "int8-weight")
POOLINGS = ("mean", "first")
HEADS = ("none", "masked", "replaced")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("source", metavar="SRC", type=_source, help="the model")
    parser.add_argument("destination", metavar="DST", type=_destination, help="the new directory, or file")
    parser.add_argument("--to", required=True, choices=(*DIRECTORIES, *phone_export.FORMATS), help="the format of DST")
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
        "Hugging Face; rows without padding are computed alike",
    )
    parser.add_argument("--lengths", type=_lengths, help="of a phone's file: tokens in a row (default: 128, or any)")
    parser.add_argument("--precision", choices=PRECISIONS, help="of its weights (default: fp32; others: litert)")
    parser.add_argument(
        "--calibration",
        type=Path,
        help="litert, int8-static: a file of texts that sets the scales, one a line, a tab within a pair",
    )
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="of its embedding, without a head: the mean of the tokens' states (the default) or the pooled first",
    )
    parser.add_argument(
        "--examples",
        type=_count,
        help="of a fine-tuned model's development set, that the file and the model are scored on, evenly drawn "
        f"(default: {phone_export.EXAMPLES:,}; 0: all)",
    )
    parser.add_argument("--no-optimize", action="store_true", default=None, help="litert: keep the training graph")
    parser.add_argument(
        "--python", type=Path, help="executorch: the Python that has its packages (default: the one that runs this)"
    )


def _lengths(text: str) -> list[int]:
    try:
        return [int(length) for length in text.split(",")]
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
    """Read, convert, write."""
    from bertzoo.core import atomic

    if os.path.realpath(args.source) == os.path.realpath(args.destination):
        raise UserError(f"SRC and DST are both {args.source}; name another directory for the result")
    for name, formats in OPTIONS.items():
        if getattr(args, name) is not None and args.to not in formats:
            raise UserError(f"--{name.replace('no_', 'no-')} is of {_either(formats)}, not of --to={args.to}")
    if args.to in phone_export.FORMATS:
        pretrained, made = phone_export.write(args, lambda: _read(args))
        print(f"{_wrote(args, pretrained)} {made}")
        return 0
    atomic.check(args.destination)
    pretrained = _read(args)
    _write_directory(args, pretrained)
    return 0


def _either(formats: Sequence[str]) -> str:
    return f"--to={formats[0]}" if len(formats) == 1 else "the files for phones (" + ", ".join(formats) + ")"


def _read(args: argparse.Namespace) -> "Pretrained":
    """The model with the head and the windows that are asked for; says what is left out."""
    from bertzoo.conversion import heads
    from bertzoo.runs import any_model

    pretrained = any_model.read(args.source)
    if args.head is not None:
        pretrained, dropped = heads.keep(pretrained, args.head)
        for name in dropped:
            say(f"left out: {name}")
    for kind in pretrained.others if args.head is None else ():
        say(f"left out: the generator (--head={kind} takes it)")
    return heads.leak_padding(pretrained) if args.leak_padding else pretrained


def _write_directory(args: argparse.Namespace, pretrained: "Pretrained") -> None:
    from bertzoo.conversion import huggingface, pytorch
    from bertzoo.conversion.family import Inexpressible
    from bertzoo.core import atomic
    from bertzoo.runs import any_model

    write = {"huggingface": huggingface.write, "bertzoo": any_model.write, "pytorch": pytorch.write}[args.to]
    with atomic.directory(args.destination) as temporary:
        try:
            write(pretrained, temporary)
        except Inexpressible as error:
            say(f"{error}; written with a PyTorch module of its own instead, as --to=pytorch does")
            pytorch.write(pretrained, temporary)
    if pretrained.tokenizer is None:
        say(f"{args.source} holds no tokenizer, so that {args.destination} has none either")
    print(_wrote(args, pretrained))


def _wrote(args: argparse.Namespace, pretrained: "Pretrained") -> str:
    numbers = pretrained.parameter_count
    return f"Wrote {args.destination}: {pretrained.model.kind}, head {pretrained.head.kind}, {numbers:,} parameters."
