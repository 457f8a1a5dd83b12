"""What `evaluate` and `predict` do with a fine-tuned model that answers questions."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support.options import check_folder, say, written
from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    from bertzoo.finetuning.predict_answers import Answering
    from bertzoo.tasks.squad import Question

_SHOWN = 60  # characters of a question beside its answer


def output(args: argparse.Namespace) -> Path | None:
    """The directory of --output, checked before anything is computed."""
    from bertzoo.core.paths import on_disk

    folder = on_disk(args.output, "--output", "name a directory on this machine") if args.output else None
    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise UserError(f"--output={folder} is a file: name a directory")
        check_folder(next(path for path in (folder, *folder.parents) if path.exists()), f"--output={folder}")
    return folder


def predict(args: argparse.Namespace, model: "Answering", form: str) -> int:
    """Answer every question from its text, in their order."""
    from bertzoo.tasks import predictions

    if args.task:
        model = model.of(model.task(args.task))
    questions = _questions(args, model)
    if not questions:
        say("there is no question")
        return 0
    found, skipped, shortened = model.answer(questions, args.batch_size or 0)
    longest = model.recipe.squad.max_question
    empty = sum(not question.text.strip() for question in questions)
    for count, what in (
        (shortened, f"cut to {longest} pieces"),
        (empty, "empty"),
        (skipped.total(), "without an answer: the text to find it in has no word"),
    ):
        if count:
            say(f"{count:,} of {len(questions):,} questions {'is' if count == 1 else 'are'} {what}")
    records = predictions.answers(found)
    forms = {".jsonl": predictions.jsonl, ".tsv": predictions.tsv, predictions.PREDICTIONS: predictions.predictions}
    lines = forms[form](records) if form else _shown(questions, records)
    with written(args.output) as file:
        file.writelines(f"{line}\n" for line in lines)
    return 0


def _questions(args: argparse.Namespace, model: "Answering") -> Sequence["Question"]:
    """Where the flags say that the questions are: one place, of the command line, a split, a file, standard input."""
    from bertzoo.finetuning.evaluate import questions
    from bertzoo.tasks import inputs, squad

    alone = [text for text in (args.question, args.context) if text is not None]
    given = [f"--{name}" for name in ("input", "split") if getattr(args, name)]
    given += ["--question and --context"] * bool(alone) + ["TEXT"] * bool(args.text)
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} both say where the questions are: keep one")
    if len(alone) == 1:
        raise UserError("--question and --context go together: a question, and the text that holds the answer")
    for name in ("text_a", "text_b"):
        if getattr(args, name) and (not args.input or args.input.endswith(".json")):
            raise UserError(f"--{name} is a column of a table: give --input with one")
    if args.pair and (args.split or args.input):
        raise UserError("--pair is not for questions, which are with their texts already")
    if args.split:
        return _split(args, model)
    if args.data_dir and not args.task:
        raise UserError("--data_dir is where a task's files are: give --split or --task with it")
    if args.input and args.input.endswith(".json"):
        return squad.read(Path(args.input))
    wanted = inputs.Wanted(pair=True)
    if args.input:
        own = model.recipe.own
        columns = [args.text_a or own.question, args.text_b or own.context]
        return questions(inputs.table(args.input, columns, wanted, header=own.header), args.input)
    if args.text or alone:
        return questions(inputs.words(args.text or alone, wanted), "the command line")
    return questions(inputs.standard_input(sys.stdin, wanted), "standard input")


def _split(args: argparse.Namespace, model: "Answering") -> Sequence["Question"]:
    task = model.task(args.task or "")
    if args.split not in ("train", "dev", "test"):
        raise UserError(f"--split={args.split} is none of train, dev and test")
    return model.asked(task, args.split, args.data_dir or model.recipe.data_dir).questions


def _shown(questions: Sequence["Question"], records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """For a person: the answer, and to which question."""
    for question, found in zip(questions, records, strict=True):
        text = " ".join(question.text.split())
        text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]} …"
        share = "" if found["probability"] is None else f" {found['probability']:.0%}"
        yield f"{' '.join(found['answer'].split()) or '-'}{share}\t{text}"
