"""Turn a model into another format: what SRC is it says itself, --to says what DST becomes.

SRC is a run, one of its checkpoints (RUN/checkpoints/STEP), a model directory that this verb wrote, a Hugging Face
directory, or an original TensorFlow 1 checkpoint of BERT, MobileBERT, ELECTRA or ConvBERT (its directory, or what its
files begin with), for which TensorFlow must be installed. DST must not exist, or be empty; it is complete once it is
there. What transformers has no class for (IB-BERT, schuBERT, combinations) becomes tensors, config.json and
modeling_bertzoo.py, a PyTorch module that loads them and needs neither transformers nor bertzoo; --to=pytorch writes
this of any model.

examples:
  bertzoo convert runs/demo exported --to=huggingface
  bertzoo convert bert-base-uncased bert --to=bertzoo
  bertzoo convert bert-base-uncased encoder --to=bertzoo --head=none
  bertzoo convert uncased_L-12_H-768_A-12/bert_model.ckpt bert --to=bertzoo
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from bertzoo.errors import UserError
from bertzoo.places import on_disk
from bertzoo.verbs.shared import say

TARGETS = ("huggingface", "bertzoo", "pytorch")
HEADS = ("none", "masked", "replaced")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("source", metavar="SRC", type=_source, help="the model")
    parser.add_argument("destination", metavar="DST", type=_destination, help="the new directory")
    parser.add_argument("--to", required=True, choices=TARGETS, help="the format of DST")
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


def _source(text: str) -> Path:
    return on_disk(text, "SRC =", "copy the model to this machine and name the copy")


def _destination(text: str) -> Path:
    return on_disk(text, "DST =", "name a directory, and copy that")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Read, convert, write."""
    from bertzoo.convert import atomic, directory, heads, huggingface, pytorch
    from bertzoo.convert.family import Inexpressible

    if os.path.realpath(args.source) == os.path.realpath(args.destination):
        raise UserError(f"SRC and DST are both {args.source}; name another directory for the result")
    atomic.check(args.destination)
    pretrained = directory.read(args.source)
    if args.head is not None:
        pretrained, dropped = heads.keep(pretrained, args.head)
        for name in dropped:
            say(f"left out: {name}")
    for kind in pretrained.others if args.head is None else ():
        say(f"left out: the generator (--head={kind} takes it)")
    if args.leak_padding:
        pretrained = heads.leak_padding(pretrained)
    write = {"huggingface": huggingface.write, "bertzoo": directory.write, "pytorch": pytorch.write}[args.to]
    with atomic.directory(args.destination) as temporary:
        try:
            write(pretrained, temporary)
        except Inexpressible as error:
            say(f"{error}; written with a PyTorch module of its own instead, as --to=pytorch does")
            pytorch.write(pretrained, temporary)
    if pretrained.tokenizer is None:
        say(f"{args.source} holds no tokenizer, so that {args.destination} has none either")
    numbers = sum(array.size for array in pretrained.params.values())
    kind, head = pretrained.model.kind, pretrained.head.kind
    print(f"Wrote {args.destination}: {kind}, head {head}, {numbers:,} parameters.")
    return 0
