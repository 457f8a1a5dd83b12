"""What `bertzoo convert` does for the formats of phones."""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    from bertzoo.conversion.pretrained import Pretrained
    from bertzoo.export.check.task_score import Quiz
    from bertzoo.finetuning.predict_answers import Answering
    from bertzoo.finetuning.predict_labels import Trained

FORMATS = ("litert", "torch-export", "torchscript", "onnx", "executorch")
RUNTIMES = {"torch-export": "torch", "torchscript": "torch"}  # of the others the name is the format's
SCORED = ("sequence_classification", "token_classification", "span", "joint_span")  # heads of tasks
FEW = 16  # texts that set the scales
EXAMPLES = 1500  # that a file is scored on: all of GLUE's smaller tasks


def write(args: argparse.Namespace, model: "Callable[[], Pretrained]") -> "tuple[Pretrained, str]":
    """Write the file that is asked for and print what was measured; the model, and a few words on the file.

    `model` is read once the packages and the place are there.
    """
    from bertzoo.core import atomic
    from bertzoo.export import beside, export
    from bertzoo.export.formats import Wanted, targets

    target = targets(args.python or Path(sys.executable))[args.to]
    destination: Path = args.destination
    if destination.suffix != target.suffix:
        raise UserError(f"DST = {destination}: name a file that ends in {target.suffix}")
    if args.precision is not None and args.precision not in target.precisions:
        raise UserError(f"--precision={args.precision} is of --to=litert: --to={args.to} writes fp32")
    target.check()
    companions = beside.companions(destination)
    atomic.check_file(destination, *companions)
    texts = _calibration(args)
    pretrained = model()
    if texts and pretrained.tokenizer is None:
        raise UserError(f"--calibration={args.calibration}: {args.source} holds no tokenizer that could read its texts")
    if args.pooling is not None and pretrained.head.kind != "none":
        raise UserError(
            f"--pooling is of a model without a head, but this one's is {pretrained.head.kind}: add --head=none"
        )
    given = {name: getattr(args, name) for name in ("precision", "pooling") if getattr(args, name) is not None}
    lengths = target.lengths(pretrained, args.lengths or ())
    wanted = Wanted(lengths=lengths, optimise=not args.no_optimize, calibration=texts, **given)
    quiz = _quiz(args, pretrained, max(wanted.lengths))
    with atomic.files(destination, *companions) as temporary:
        measure = partial(_memory, args, pretrained.model)
        said = export.write(target, pretrained, temporary / destination.name, wanted, quiz, measure)
    if pretrained.tokenizer is None:
        say(f"{args.source} holds no tokenizer, so that random ids were compared")
    _print(said)
    size, memory = (f"{said[key] / 1e6:,.1f} MB" for key in ("bytes", "memory"))
    return pretrained, f"{said['precision']}, {size}, {memory} of memory when it runs."


def _memory(args: argparse.Namespace, model: Any, file: Path, length: int, inputs: tuple[str, ...]) -> int:
    """The most bytes that a process takes which runs the file once, beyond one that has only the runtime."""
    from contextlib import closing

    from bertzoo.benchmarking.interleave import Worker
    from bertzoo.benchmarking.worker import Load

    name: str = args.to
    load = Load(RUNTIMES.get(name, name), str(file), 1, model.vocab_size, inputs)
    python = str(args.python or sys.executable) if args.to == "executorch" else sys.executable
    with closing(Worker(str(args.destination), load, python)) as worker:
        worker.run([length])
        return worker.peak()


def _calibration(args: argparse.Namespace) -> tuple[str, ...]:
    """The lines of the file of texts, which int8-static needs and nothing else takes."""
    if args.precision != "int8-static":
        if args.calibration is not None:
            raise UserError(f"--calibration is of --precision=int8-static, not of {args.precision or 'fp32'}")
        return ()
    if args.calibration is None:
        raise UserError(
            "--precision=int8-static needs --calibration=FILE, texts as the app will read them, one a line, with a tab "
            "between the two of a pair"
        )
    try:
        lines = args.calibration.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"--calibration={args.calibration} is no UTF-8 text") from None
    except OSError as error:
        raise UserError(f"--calibration={args.calibration} cannot be read: {error.strerror}") from None
    texts = tuple(line for line in lines if line.strip())
    if not texts:
        raise UserError(f"--calibration={args.calibration} holds no text")
    for text in texts:
        if text.count("\t") > 1:
            raise UserError(
                f"--calibration={args.calibration} has a line of {text.count(chr(9)) + 1} texts between tabs, where a "
                f"row has two at most: {text[:60]!r}"
            )
    if len(texts) < FEW:
        say(f"--calibration={args.calibration} has {len(texts)} texts: scales of fewer than {FEW} are seldom good")
    return texts


def _print(said: dict[str, Any]) -> None:
    from bertzoo.tasks.metrics import is_threshold

    for name, signature in said["signatures"].items():
        for output, measured in signature["outputs"].items():
            print(
                f"{name}: {output} of {signature['rows']} rows: largest error {measured['max_error']:.2g} of values up "
                f"to {measured['largest']:.3g}, cosine {measured['cosine']:.6f}"
            )
    if scores := said["scores"]:
        for name, points in scores["file"].items():
            if is_threshold(name):
                continue
            print(f"{scores['task']}, {scores['split']}: {name} {points:.2f}, the model's {scores['model'][name]:.2f}")
    if "delegated" in said:
        print(f"XNNPACK runs {said['delegated']} of the graph's {said['nodes']} nodes, in {said['delegates']} parts")


def _quiz(args: argparse.Namespace, pretrained: "Pretrained", longest: int) -> "Quiz | None":
    """Of the first development set of the task that a fine-tuned model was trained on; says why where there is none."""
    from dataclasses import replace

    from bertzoo.finetuning import predict_answers, predict_labels, saved_model

    if not saved_model.is_finetuned(args.source) or pretrained.head.kind not in SCORED:
        if args.examples is not None:
            raise UserError(f"--examples={args.examples} is of a fine-tuned model with the head of its task")
        return None
    most = EXAMPLES if args.examples is None else args.examples
    try:
        found = saved_model.read(args.source)
        if not found.knows_task:
            raise UserError(f"{args.source} does not say on which task it was trained")
        # What is exported may read padding otherwise (--leak_padding).
        found = replace(found, pretrained=replace(found.pretrained, model=pretrained.model))
        if longest < found.max_length:
            say(f"{found.named}: scored in rows of {longest}, which the file reads; in training of {found.max_length}")
        asked = predict_answers.of(found)
        quiz = (
            _labels(predict_labels.of(found), pretrained, longest, most)
            if asked is None
            else _questions(asked, longest, most)
        )
    except UserError as error:
        if args.examples is not None:
            raise
        say(f"the task's scores are not measured: {error}")
        return None
    count, whole = quiz.share
    if count < whole:
        say(f"{quiz.name}, {quiz.split}: scored on {count:,} of {whole:,} examples (--examples=0 takes all)")
    return quiz


def _labels(model: "Trained", pretrained: "Pretrained", longest: int, most: int) -> "Quiz":
    from dataclasses import replace

    from bertzoo.export.check.task_score import Labels

    task = model.task()
    model = replace(model.of(task, say), max_length=min(model.max_length, longest))
    if getattr(model.pretrained.head, "labels", ()) != pretrained.head.labels:
        raise UserError(f"the labels of {task.name} have another order than those of the model")
    if not task.dev:
        raise UserError(f"{task.name} has no development set")
    split = task.dev[0]
    whole = task.read(split, model.recipe.data_dir).examples
    if any(example.label is None for example in whole):
        raise UserError(f"the {split} set of {task.name} has no labels")
    examples = _evenly(whole, most)
    rows = model.rows(examples)
    return Labels(task=task, split=split, examples=examples, whole=len(whole), rows=rows, scale=model.scale)


def _questions(model: "Answering", longest: int, most: int) -> "Quiz":
    from dataclasses import replace

    from bertzoo.export.check.task_score import Questions

    task, options = model.task(), model.recipe.squad
    room = longest - options.max_question - 3  # for the paragraph, beside [CLS] and two [SEP]
    if room < 1:
        raise UserError(f"rows of {longest} tokens leave no room beside a question of {options.max_question}")
    # Parts overlap by half at least, as in long rows.
    options = replace(options, stride=min(options.stride, max(1, room // 2)))
    recipe = replace(model.recipe, squad=options)
    model = replace(model.of(task), max_length=min(model.max_length, longest), recipe=recipe)
    whole = model.asked(task, "dev", model.recipe.data_dir)
    asked = _evenly(whole.questions, most)
    task.check(asked)
    rows = model.windows(asked, labels=False)
    if not rows.windows:
        raise UserError(f"the questions of {task.name} leave no row: no text of theirs has a word")
    decoding = model.recipe.squad.decoding(task.nulls)
    return Questions(task=task, split="dev", whole=len(whole.questions), rows=rows, decoding=decoding)


def _evenly(examples: Sequence[Any], most: int) -> list[Any]:
    """So many at most, as far apart as they can be; 0 is all."""
    count = min(most or len(examples), len(examples))
    return [examples[index * len(examples) // count] for index in range(count)]
