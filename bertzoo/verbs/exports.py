"""What `bertzoo convert` does for the formats of phones."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.errors import UserError
from bertzoo.verbs.shared import say

if TYPE_CHECKING:
    from bertzoo.convert.pretrained import Pretrained
    from bertzoo.export.scored import Quiz

FORMATS = ("litert", "torch-export", "torchscript", "onnx", "executorch")
LABELLED = ("sequence_classification", "token_classification")


def write(args: argparse.Namespace, model: "Callable[[], Pretrained]") -> "tuple[Pretrained, str]":
    """Write the file that is asked for and print what was measured; the model, and a few words on the file.

    `model` is read once the packages and the place are there.
    """
    from bertzoo.convert import atomic
    from bertzoo.export import phone
    from bertzoo.export.targets import Wanted, targets

    target = targets(args.python or Path(sys.executable))[args.to]
    destination: Path = args.destination
    if destination.suffix != target.suffix:
        raise UserError(f"DST = {destination}: name a file that ends in {target.suffix}")
    if args.precision is not None and args.precision not in target.precisions:
        raise UserError(f"--precision={args.precision} is of --to=litert: --to={args.to} writes fp32")
    target.check()
    companions = phone.companions(destination)
    atomic.check_file(destination, *companions)
    pretrained = model()
    if args.pooling is not None and pretrained.head.kind != "none":
        raise UserError(
            f"--pooling is of a model without a head, but this one's is {pretrained.head.kind}: add --head=none"
        )
    given = {name: getattr(args, name) for name in ("precision", "pooling") if getattr(args, name) is not None}
    lengths = target.lengths(pretrained, args.lengths or ())
    wanted = Wanted(lengths=lengths, optimise=not args.no_optimize, **given)
    quiz = _quiz(args.source, pretrained, max(wanted.lengths))
    with atomic.files(destination, *companions) as temporary:
        said = phone.write(target, pretrained, temporary / destination.name, wanted, quiz)
    if pretrained.tokenizer is None:
        say(f"{args.source} holds no tokenizer, so that random ids were compared")
    _print(said)
    return pretrained, f"{said['precision']}, {said['bytes'] / 1e6:,.1f} MB."


def _print(said: dict[str, Any]) -> None:
    for name, signature in said["signatures"].items():
        for output, measured in signature["outputs"].items():
            print(
                f"{name}: {output} of {signature['rows']} rows: largest error {measured['max_error']:.2g} of values up "
                f"to {measured['largest']:.3g}, cosine {measured['cosine']:.6f}"
            )
    if scores := said["scores"]:
        for name, points in scores["file"].items():
            print(f"{scores['task']}, {scores['split']}: {name} {points:.2f}, the model's {scores['model'][name]:.2f}")
    if "delegated" in said:
        print(f"XNNPACK runs {said['delegated']} of the graph's {said['nodes']} nodes, in {said['delegates']} parts")


def _quiz(source: Path, pretrained: "Pretrained", longest: int) -> "Quiz | None":
    """The first development set of the task that a fine-tuned model was trained on; says why where there is none."""
    from dataclasses import replace

    from bertzoo.export.scored import Quiz
    from bertzoo.finetune import kept, trained

    if not kept.is_finetuned(source) or pretrained.head.kind not in LABELLED:
        return None
    try:
        model = trained.load(source)
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
