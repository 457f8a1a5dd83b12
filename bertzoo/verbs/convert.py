"""Turn a model into another format: what SRC is it says itself, --to says what DST becomes.

SRC is a run, one of its checkpoints (RUN/checkpoints/STEP), a model directory that this verb wrote, a Hugging Face
directory, or an original TensorFlow 1 checkpoint of BERT, MobileBERT, ELECTRA or ConvBERT (its directory, or what its
files begin with), for which TensorFlow must be installed. DST must not exist, or be empty; it is complete once it is
there. What transformers has no class for (IB-BERT, schuBERT, combinations) becomes tensors, config.json and
modeling_bertzoo.py, a PyTorch module that loads them and needs neither transformers nor bertzoo; --to=pytorch writes
this of any model.

--to=litert writes a file for phones, NAME.tflite, beside it NAME.json, which says what it is, and NAME.files/ with the
tokenizer's files and golden.json, which an app is tested with. The file reads one sentence at a time and has a
signature length_N for each of --lengths. It is run in LiteRT's interpreter and measured against the model before it is
there; one that differs, or gives NaN, is not written.

examples:
  bertzoo convert runs/demo exported --to=huggingface
  bertzoo convert bert-base-uncased bert --to=bertzoo
  bertzoo convert bert-base-uncased encoder --to=bertzoo --head=none
  bertzoo convert uncased_L-12_H-768_A-12/bert_model.ckpt bert --to=bertzoo
  bertzoo convert runs/sst2 sst2.tflite --to=litert --lengths=32,64,128 --precision=int8-dynamic
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.errors import UserError
from bertzoo.places import on_disk
from bertzoo.verbs.shared import say

if TYPE_CHECKING:
    from bertzoo.convert.pretrained import Pretrained
    from bertzoo.export.scored import Quiz

TARGETS = ("huggingface", "bertzoo", "pytorch", "litert")
PRECISIONS = ("fp32", "fp16", "int8-dynamic", "int8-weight")
POOLINGS = ("mean", "first")
LABELLED = ("sequence_classification", "token_classification")
HEADS = ("none", "masked", "replaced")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("source", metavar="SRC", type=_source, help="the model")
    parser.add_argument("destination", metavar="DST", type=_destination, help="the new directory, or file")
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
    parser.add_argument("--lengths", type=_lengths, help="litert: tokens in a row, a signature each (default: 128)")
    parser.add_argument("--precision", choices=PRECISIONS, help="litert: of the weights (default: fp32)")
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="litert, without a head: an embedding is the mean of the tokens' states (the default) or the pooled first",
    )
    parser.add_argument("--no-optimize", action="store_true", help="litert: keep the training graph as it is")


def _lengths(text: str) -> list[int]:
    try:
        return [int(length) for length in text.split(",")]
    except ValueError:
        raise UserError(f"--lengths = {text} is not numbers with commas between, as in --lengths=32,128") from None


def _source(text: str) -> Path:
    return on_disk(text, "SRC =", "copy the model to this machine and name the copy")


def _destination(text: str) -> Path:
    return on_disk(text, "DST =", "name a directory, and copy that")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Read, convert, write."""
    from bertzoo.convert import atomic

    if os.path.realpath(args.source) == os.path.realpath(args.destination):
        raise UserError(f"SRC and DST are both {args.source}; name another directory for the result")
    if args.to == "litert":
        return _litert(args)
    for name, value in (("lengths", args.lengths), ("precision", args.precision), ("pooling", args.pooling)):
        if value is not None:
            raise UserError(f"--{name} is of --to=litert and has no meaning for --to={args.to}")
    if args.no_optimize:
        raise UserError(f"--no-optimize is of --to=litert and has no meaning for --to={args.to}")
    atomic.check(args.destination)
    pretrained = _read(args)
    _write_directory(args, pretrained)
    return 0


def _read(args: argparse.Namespace) -> "Pretrained":
    """The model with the head and the windows that are asked for; says what is left out."""
    from bertzoo.convert import directory, heads

    pretrained = directory.read(args.source)
    if args.head is not None:
        pretrained, dropped = heads.keep(pretrained, args.head)
        for name in dropped:
            say(f"left out: {name}")
    for kind in pretrained.others if args.head is None else ():
        say(f"left out: the generator (--head={kind} takes it)")
    return heads.leak_padding(pretrained) if args.leak_padding else pretrained


def _write_directory(args: argparse.Namespace, pretrained: "Pretrained") -> None:
    from bertzoo.convert import atomic, directory, huggingface, pytorch
    from bertzoo.convert.family import Inexpressible

    write = {"huggingface": huggingface.write, "bertzoo": directory.write, "pytorch": pytorch.write}[args.to]
    with atomic.directory(args.destination) as temporary:
        try:
            write(pretrained, temporary)
        except Inexpressible as error:
            say(f"{error}; written with a PyTorch module of its own instead, as --to=pytorch does")
            pytorch.write(pretrained, temporary)
    if pretrained.tokenizer is None:
        say(f"{args.source} holds no tokenizer, so that {args.destination} has none either")
    print(_wrote(args, pretrained))


def _litert(args: argparse.Namespace) -> int:
    from bertzoo.convert import atomic
    from bertzoo.export import beside, litert, phone

    destination: Path = args.destination
    if destination.suffix != ".tflite":
        raise UserError(f"DST = {destination}: name a file that ends in .tflite")
    litert.check()
    companions = beside.companions(destination)
    atomic.check_file(destination, *companions)
    pretrained = _read(args)
    if args.pooling is not None and pretrained.head.kind != "none":
        raise UserError(
            f"--pooling is of a model without a head, but this one's is {pretrained.head.kind}: add --head=none"
        )
    given = {name: getattr(args, name) for name in ("precision", "pooling") if getattr(args, name) is not None}
    lengths = phone.lengths_of(pretrained.model, args.lengths or ())
    wanted = phone.Wanted(lengths=lengths, optimise=not args.no_optimize, **given)
    quiz = _quiz(args, pretrained, max(wanted.lengths))
    with atomic.files(destination, *companions) as temporary:
        said = phone.write(pretrained, temporary / destination.name, wanted, quiz)
    if pretrained.tokenizer is None:
        say(f"{args.source} holds no tokenizer, so that random ids were compared")
    for name, signature in said["signatures"].items():
        for output, measured in signature["outputs"].items():
            print(
                f"{name}: {output} of {signature['rows']} rows: largest error {measured['max_error']:.2g} of values up "
                f"to {measured['largest']:.3g}, cosine {measured['cosine']:.6f}"
            )
    if scores := said["scores"]:
        for name, points in scores["file"].items():
            print(f"{scores['task']}, {scores['split']}: {name} {points:.2f}, the model's {scores['model'][name]:.2f}")
    print(f"{_wrote(args, pretrained)} {said['precision']}, {said['bytes'] / 1e6:,.1f} MB.")
    return 0


def _quiz(args: argparse.Namespace, pretrained: "Pretrained", longest: int) -> "Quiz | None":
    """The first development set of the task that a fine-tuned model was trained on; says why where there is none."""
    from dataclasses import replace

    from bertzoo.export.scored import Quiz
    from bertzoo.finetune import kept, trained

    if not kept.is_finetuned(args.source) or pretrained.head.kind not in LABELLED:
        return None
    try:
        model = trained.load(args.source)
        task = model.task()
        model = replace(model.of(task), max_length=min(model.max_length, longest))
        if getattr(model.pretrained.head, "labels", ()) != pretrained.head.labels:
            raise UserError(f"the labels of {task.name} have another order than those of the model")
        if not task.dev:
            raise UserError(f"{task.name} has no development set")
        examples = task.read(task.dev[0], model.recipe.data_dir).examples
        if any(example.label is None for example in examples):
            raise UserError(f"the {task.dev[0]} set of {task.name} has no labels")
    except UserError as error:
        say(f"the task's scores are not measured: {error}")
        return None
    return Quiz(task=task, split=task.dev[0], examples=examples, rows=model.rows(examples), scale=model.scale)


def _wrote(args: argparse.Namespace, pretrained: "Pretrained") -> str:
    numbers = sum(array.size for array in pretrained.params.values())
    return f"Wrote {args.destination}: {pretrained.model.kind}, head {pretrained.head.kind}, {numbers:,} parameters."
