"""The commands evaluate and predict for fine-tuned models and exported files: flags, checks and output."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support.options import Parser, check_file, check_folder, say, written
from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    from bertzoo.finetuning.evaluate import TaskModel

_SHOWN = 60  # characters of a text that stands beside its prediction


def flags(parser: Parser) -> argparse._ArgumentGroup:
    """Declare the flags that apply only to fine-tuned models, and return their group."""
    group = parser.group("for a fine-tuned model or an exported file")
    group.add_argument("--task", metavar="NAME", help="the task (default: the task that the model records)")
    group.add_argument("--data_dir", metavar="DIR", help="the directory of the task's files (default: as in training)")
    model_flags(group)
    return group


def model_flags(group: argparse._ArgumentGroup) -> None:
    """Declare the flags that say which model of a run is used, and how."""
    group.add_argument(
        "--seed",
        type=_whole,
        metavar="N",
        help="for a run of several seeds: the seed whose model to use (default: the best seed)",
    )
    group.add_argument(
        "--batch_size",
        type=_whole,
        metavar="B",
        help="rows per batch; does not change results (default: as in training)",
    )
    group.add_argument(
        "--python",
        type=Path,
        metavar="FILE",
        help="for a .pte file: a Python that has executorch (default: this Python)",
    )


def _whole(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise UserError(f"--seed and --batch_size need whole numbers, not {text!r}. Write, for example, --seed=3.")


def reject_flags(args: argparse.Namespace, names: Iterable[str], model: str) -> None:
    """Raise UserError if one of the flags `names` is set.

    model: describes args.run in the message, such as "a pretraining run".
    """
    for name in names:
        if (value := getattr(args, name)) is not None and value is not False:  # 0 is a value
            raise UserError(f"--{name} does not apply to {args.run}, which is {model}. Leave --{name} out.")


def evaluate_model(args: argparse.Namespace) -> int:
    """Score a model on a split or on --input, print the scores and return the exit code."""
    from bertzoo.export.file_model import open_task_model
    from bertzoo.finetuning.evaluate import evaluate_split

    model = open_task_model(args.run, args.seed, args.batch_size, args.python)
    if not (questions := model.kind == "span"):
        reject_flags(args, ("output",), "a model that predicts labels")
    results = evaluate_split(
        model,
        split=args.split or "",
        task=args.task or "",
        data_dir=args.data_dir or "",
        batch_size=args.batch_size or 0,
        input=args.input or "",
        output=_output_folder(args.output) if args.output else None,
    )
    if args.json:
        print(json.dumps(results))
        return 0
    unit = "question" if questions else "example"
    for split, scores in results["scores"].items():
        line = ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
        examples = f"{results['examples'][split]:,} {unit}s"
        print(f"{results['task']}, {Path(args.input).name if args.input else split}, {examples}: {line}")
    if results.get("collapsed"):
        print(f"every {unit} got the same prediction")
    return 0


def output_suffix(args: argparse.Namespace) -> str:
    """Return the output's suffix, such as ".jsonl", or "" for plain lines; raises UserError for a bad --output."""
    from bertzoo.tasks import predictions

    if not args.output:
        return ".jsonl" if args.json else ""
    suffix = predictions.output_format(args.output)
    check_file(args.output, f"--output={args.output}")
    return suffix


def predict(args: argparse.Namespace, model: "TaskModel", suffix: str) -> int:
    """Write the predictions in the order of the texts, and return the exit code. suffix: from `output_suffix`."""
    from bertzoo.finetuning.task_kind import warn_unknown
    from bertzoo.tasks import predictions
    from bertzoo.tasks.glue import GLUE

    model.task_class.unnamed(model)  # raises if the model predicts nothing
    questions = model.kind == "span"
    _check_apart(args, model)
    if not questions:
        reject_flags(args, ("question", "context"), "a model that predicts labels")
        if suffix == ".json":
            raise UserError(
                f"--output={args.output} is JSON for questions, but {args.run} predicts labels. Use .jsonl or .tsv."
            )
    if args.task:
        model = model.for_task(model.task(args.task, args.data_dir or ""))
    texts = _read_texts(args, model, questions)
    unit = "questions" if questions else "texts"
    if not texts:
        say(f"there are no {unit}")
        return 0
    warn_unknown(model.tokenizer, texts, f"the {unit}")
    predicted = model.predict(texts, args.batch_size or 0)
    for count, state in predicted.counts:
        if count:
            say(f"{count:,} of {len(texts):,} {unit} {'is' if count == 1 else 'are'} {state}")
    task = GLUE.get(args.task or model.task_name)
    names = dict(zip(task.labels, task.class_names, strict=True)) if task else {}
    shown = (_shown(text, record, names) for text, record in zip(texts, predicted.records, strict=True))
    lines = predictions.FORMATS[suffix](predicted.records) if suffix else shown
    with written(args.output) as file:
        file.writelines(f"{line}\n" for line in lines)
    return 0


def _output_folder(name: str) -> Path:
    from bertzoo.core.paths import on_disk

    folder = on_disk(name, "--output", "Name a directory on this machine.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output={folder} is a file. Name a directory.")
    check_folder(next(path for path in (folder, *folder.parents) if path.exists()), f"--output={folder}")
    return folder


def _check_apart(args: argparse.Namespace, model: "TaskModel") -> None:
    """Raise UserError if --output would replace an input, or a file in the task's directory."""
    if not args.output:
        return
    output, directory = Path(args.output).resolve(), Path(args.data_dir or model.recipe.data_dir).resolve()
    own = model.recipe.own
    files = {Path(args.input).resolve()} if args.input else set()
    if args.split:
        files |= {directory, *((directory / name).resolve() for name in (own.train, own.dev, own.test) if name)}
    if output in files:
        raise UserError(f"--output={args.output} is an input. Name another file.")
    # Files of the task `own` are named above; every file in a directory of GLUE or SQuAD belongs to the task.
    if args.split and model.recipe.task != "own" and output.exists() and output.parent == directory:
        raise UserError(f"--output={args.output} is in the task's directory {directory}. Name another file.")


def _check_source(args: argparse.Namespace, questions: bool) -> None:
    """Raise UserError if flags name two sources of the texts, or a flag does not fit the source."""
    single = [text for text in (args.question, args.context) if text is not None]
    texts = ["--question and --context"] * bool(single) + ["TEXT"] * bool(args.text)
    sources = [f"--{name}" for name in ("input", "split") if getattr(args, name)] + texts
    if len(sources) > 1:
        raise UserError(f"{' and '.join(sources)} exclude each other, because each names the texts. Keep one.")
    if len(single) == 1:
        present, missing = ("question", "context") if args.context is None else ("context", "question")
        raise UserError(
            f"--{present} is set, but --{missing} is missing. Give the question, and the text that holds its answer."
        )
    for name in ("text_a", "text_b"):
        if getattr(args, name) and (not args.input or (questions and args.input.endswith(".json"))):
            raise UserError(f"--{name} names a column of a table. Add --input=TABLE.")
    if args.data_dir and not args.task and not args.split:
        raise UserError(
            f"--data_dir={args.data_dir} applies only to a task. Add --split or --task, or leave --data_dir out."
        )
    if args.pair and args.split:
        raise UserError(
            f"--pair does not apply to --split={args.split}, whose task decides whether it has pairs. Leave --pair out."
        )
    if args.pair and args.input and questions:
        raise UserError("--pair does not apply to questions, which come with their paragraphs. Leave --pair out.")


def _read_split(args: argparse.Namespace, model: "TaskModel") -> Sequence[Any]:
    from bertzoo.finetuning.evaluate import check_files
    from bertzoo.finetuning.task_kind import log_skipped

    task = model.task(args.task or "", args.data_dir or "")
    directory = args.data_dir or model.recipe.data_dir
    check_files(model, directory, args.split, task.name)
    first, *others = task.parts(args.split)
    if others:
        raise UserError(
            f"--split={args.split} of {task.name} has the parts {' and '.join((first, *others))}. Use "
            f"--split={first}, or another part."
        )
    read = task.read(first, directory)
    log_skipped({first: read.skipped} if read.skipped else {}, "rows")
    return read.examples


def _read_texts(args: argparse.Namespace, model: "TaskModel", questions: bool) -> Sequence[Any]:
    """Return the texts, pairs or questions that the flags name, by default those of standard input."""
    from bertzoo.finetuning.evaluate import to_questions
    from bertzoo.tasks import inputs, squad

    _check_source(args, questions)
    if args.split:
        return _read_split(args, model)
    if questions and args.input and args.input.endswith(".json"):
        return squad.read_questions(Path(args.input))
    if args.pair and (model.task_name or args.task) and not model.pair:
        raise UserError(f"--pair does not apply to {args.run}, which is fine-tuned on single texts. Leave --pair out.")
    form = inputs.InputForm(pair=args.pair or bool(args.text_b) or model.pair, words=model.kind == "tokens")
    if form.pair and form.words:
        raise UserError(f"--pair does not apply to {args.run}, which tags the words of one text. Leave --pair out.")
    own, origin = model.recipe.own, "standard input"
    if args.input:
        usual = (own.question, own.context) if questions else (own.text_a, own.text_b)
        columns = [args.text_a or usual[0], *([args.text_b or usual[1]] if form.pair else [])]
        if not all(columns):
            raise UserError(f"--input={args.input} needs a column of second texts. Name the column with --text_b.")
        examples, origin = inputs.from_table(args.input, columns, form, header=own.header), args.input
    elif given := args.text or [text for text in (args.question, args.context) if text is not None]:
        examples, origin = inputs.from_texts(given, form), "the command line"
    else:
        examples = inputs.from_stdin(sys.stdin, form)
    return to_questions(examples, origin) if questions else examples


def _shown(text: Any, record: dict[str, Any], names: dict[str, str]) -> str:
    """Return a prediction and its text as a line. names: class names to show instead of labels."""
    if "tags" in record:
        return " ".join(f"{word}/{tag or '-'}" for word, tag in zip(record["words"], record["tags"], strict=True))
    if "answer" in record:
        share = "" if record["probability"] is None else f" {record['probability']:.0%}"
        prediction, shown = f"{' '.join(record['answer'].split()) or '-'}{share}", " ".join(text.text.split())
    else:
        if "number" in record:
            prediction = f"{record['number']:.3f}"
        elif "labels" in record:
            shares = record["probabilities"]
            prediction = ", ".join(f"{label} {shares[label]:.0%}" for label in record["labels"]) or "-"
        else:
            prediction = f"{names.get(record['label'], record['label'])} {record['probability']:.0%}"
        shown = " | ".join(filter(None, (text.text_a, text.text_b)))
    return f"{prediction}\t{shown if len(shown) <= _SHOWN else f'{shown[: _SHOWN - 2]} …'}"
