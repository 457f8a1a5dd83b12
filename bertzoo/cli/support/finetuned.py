"""What `evaluate` and `predict` do with a fine-tuned model, which they hand over here; and its flags."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support import answers
from bertzoo.cli.support.options import check_file, say, written
from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    from bertzoo.finetuning.predict_answers import Answering
    from bertzoo.finetuning.predict_labels import Trained
    from bertzoo.tasks.task import Example

_SHOWN = 60  # characters of a text beside what is said of it


def flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Declare what is asked of a fine-tuned model alone."""
    group = parser.add_argument_group("of a fine-tuned model")
    group.add_argument("--task", metavar="NAME", help="the task, where the model does not say on which it was trained")
    group.add_argument("--data_dir", metavar="DIR", help="where the task's files are by now (default: where they were)")
    group.add_argument("--seed", type=_whole, metavar="N", help="this seed of a run (default: the best)")
    group.add_argument("--batch_size", type=_whole, metavar="B", help="rows at a time, which changes no result")
    return group


def _whole(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise UserError(f"{text!r} is not a whole number, as --seed and --batch_size need one")


def refuse(args: argparse.Namespace, names: Iterable[str], what: str) -> None:
    """Raise UserError where flags are given that are not of `what` the name is of; not given is None or False."""
    for name in names:
        if (given := getattr(args, name)) is not None and given is not False:
            raise UserError(f"--{name} is not for {what}, which {args.run} is")


def _check_apart(args: argparse.Namespace, model: "Trained | Answering") -> None:
    """Raise UserError where what is written would replace what is read, or what lies in the directory of a task."""
    if not args.output:
        return
    output, directory = Path(args.output).resolve(), Path(args.data_dir or model.recipe.data_dir).resolve()
    own = model.recipe.own
    files = {Path(args.input).resolve()} if args.input else set()
    if args.split:
        files |= {directory, *((directory / name).resolve() for name in (own.train, own.dev, own.test) if name)}
    if output in files:
        raise UserError(f"--output={args.output} is a file that is read: name another")
    # One's own files are known by name; GLUE's and SQuAD's directories hold nothing else.
    if args.split and model.recipe.task != "own" and output.exists() and output.parent == directory:
        raise UserError(f"--output={args.output} is a file beside the task's own in {directory}: name another")


def load(args: argparse.Namespace) -> "Trained | Answering":
    """The model that the flags name."""
    from bertzoo.finetuning import evaluate

    if args.batch_size == 0:
        raise UserError("--batch_size=0 is less than 1")
    return evaluate.load(args.run, args.seed)


def evaluate(args: argparse.Namespace) -> int:
    """Print the scores of a split, those of a run's results where it is the development set."""
    from bertzoo.finetuning.evaluate import evaluate
    from bertzoo.finetuning.predict_answers import Answering

    model = load(args)
    questions = isinstance(model, Answering)
    output = answers.output(args) if questions else None
    if not questions:
        refuse(args, ("output",), "a model that answers no questions")
    found = evaluate(
        model,
        split=args.split or "dev",
        task=args.task or "",
        data_dir=args.data_dir or "",
        batch_size=args.batch_size or 0,
        output=output,
        tell=say,
    )
    if args.json:
        print(json.dumps(found))
        return 0
    for split, scores in found["scores"].items():
        shown = ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
        unit = "questions" if questions else "examples"
        print(f"{found['task']}, {split}, {found['examples'][split]:,} {unit}: {shown}")
    if found["collapsed"]:
        print(f"every {'question got one answer' if questions else 'example got one class'}")
    return 0


def predict(args: argparse.Namespace) -> int:
    """Say of every text what the model makes of it, in the order of the texts."""
    from bertzoo.finetuning.predict_answers import Answering
    from bertzoo.tasks import predictions

    form = predictions.form(args.output) if args.output else ".jsonl" if args.json else ""
    if args.output:
        check_file(args.output, f"--output={args.output}")  # before all that would be lost
    model = load(args)
    _check_apart(args, model)
    if isinstance(model, Answering):
        return answers.predict(args, model, form)
    refuse(args, ("question", "context"), "a model that answers no questions")
    if form == predictions.PREDICTIONS:
        raise UserError(f"--output={args.output} is for a model that answers questions: name it .jsonl or .tsv")
    if args.task:
        model = model.of(model.task(args.task, args.data_dir or ""), say)
    examples = list(_examples(args, model))
    if not examples:
        say("there is no text")
        return 0
    found = model.predict(examples, args.batch_size or 0)
    empty = sum(not (one.text_a.strip() and (one.text_b is None or one.text_b.strip())) for one in examples)
    for count, what in ((int(found.cut.sum()), f"cut to {model.max_length} tokens"), (empty, "empty")):
        if count:
            say(f"{count:,} of {len(examples):,} texts {'is' if count == 1 else 'are'} {what}")
    records = predictions.records(examples, model.labels, found.values, found.probabilities, found.cut)
    lines = {".jsonl": predictions.jsonl, ".tsv": predictions.tsv}[form](records) if form else _shown(examples, records)
    with written(args.output) as file:
        file.writelines(f"{line}\n" for line in lines)
    return 0


def _examples(args: argparse.Namespace, model: "Trained") -> Sequence["Example"]:
    """Where the flags say that the texts are: one place, of the command line, a split, a file and standard input."""
    from bertzoo.finetuning.evaluate import read_split
    from bertzoo.tasks import inputs

    given = [f"--{name}" for name in ("input", "split") if getattr(args, name)] + ["TEXT"] * bool(args.text)
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} both say where the texts are: keep one")
    own = model.recipe.own
    for name in ("text_a", "text_b"):
        if getattr(args, name) and not args.input:
            raise UserError(f"--{name} is a column of a file: give --input with it")
    if args.split:
        if args.pair:
            raise UserError("--pair is not for a split of the task, which says itself what it has")
        task = model.task(args.task or "", args.data_dir or "")
        splits: tuple[str, ...] = {"train": task.train, "dev": task.dev, "test": task.test}.get(
            args.split, (args.split,)
        )
        directory = args.data_dir or model.recipe.data_dir
        if len(splits) > 1:
            raise UserError(
                f"--split={args.split} of {task.name} is {' and '.join(splits)}, of the same numbers of rows: name one"
            )
        if not splits:
            raise UserError(f"{task.name} has no {args.split} set")
        return read_split(task, splits[0], directory, say).examples
    if args.data_dir and not args.task:
        raise UserError("--data_dir is where a task's files are: give --split or --task with it")
    known = bool(model.named or args.task)
    if args.pair and known and not model.pair:
        raise UserError(f"--pair: {args.run} is fine-tuned on single texts")
    wanted = inputs.Wanted(pair=args.pair or bool(args.text_b) or model.pair, words=model.kind == "tokens")
    if wanted.pair and wanted.words:
        raise UserError(f"--pair: {args.run} tags the words of one text")
    if args.input:
        columns = [args.text_a or own.text_a]
        if wanted.pair:
            second = args.text_b or own.text_b
            if not second:
                raise UserError(f"--input={args.input}: name the column of the second text with --text_b")
            columns.append(second)
        return inputs.table(args.input, columns, wanted, header=own.header)
    if args.text:
        return inputs.words(args.text, wanted)
    return inputs.standard_input(sys.stdin, wanted)


def _shown(examples: Sequence["Example"], records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """For a person: what is said, and of which text."""
    from bertzoo.tasks.predictions import CUT

    for example, found in zip(examples, records, strict=True):
        if "tags" in found:
            pairs = zip(found["words"], found["tags"], strict=True)
            yield " ".join(f"{word}/{CUT if tag is None else tag}" for word, tag in pairs)
            continue
        text = " | ".join(filter(None, (example.text_a, example.text_b)))
        text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]} …"
        what = f"{found['label']} {found['probability']:.0%}" if "label" in found else f"{found['number']:.3f}"
        yield f"{what}\t{text}"
