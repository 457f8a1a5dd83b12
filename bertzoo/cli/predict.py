"""Fill the blanks of a sentence, or label texts with a fine-tuned model.

MODEL is a run (a fine-tuning run's best seed), RUN/seed-N, RUN/checkpoints/STEP, a model or Hugging Face directory, or
a file that `bertzoo convert` wrote. The model's head decides the prediction: tokens for each [MASK], a label with its
probability, all labels above 50 %, a number, a tag for every word, entities with their start and end, or the answer to
a question. For a task on pairs, two TEXTs, or one line with a tab, make one pair; a question and its context are one,
too. Entities and answers are found in texts of any length; other texts are cut to the length of training, and the
command prints how many.

examples:
  bertzoo predict runs/demo 'This function returns the [MASK] of the array.'
  bertzoo predict runs/mrpc --input=pairs.csv --text_a=first --text_b=second --output=labels.tsv
  bertzoo predict runs/squad1 'Who was it?' 'It was Ada, as they say.'
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.api.options import PredictOptions, finetuned
from bertzoo.cli.support import json_field, log
from bertzoo.core.atomic import check_file, write_bytes
from bertzoo.core.errors import UserError
from bertzoo.core.options import option

if TYPE_CHECKING:
    from bertzoo.finetuning.evaluate import TaskModel
    from bertzoo.runs.blanks import BlankFiller

_SHOWN = 60  # characters of a text that stands beside its prediction
TASK_FLAGS = ("task", "data_dir", "input", "text_a", "text_b", "split", "pair", "output")


@dataclass(frozen=True)
class PredictFlags(PredictOptions):
    texts: tuple[str, ...] = option("the texts (default: lines of standard input)", (), metavar="TEXT")
    _: KW_ONLY
    task: str | None = finetuned("the task (default: the task that the model records)", None, metavar="NAME")
    data_dir: str | None = finetuned("the directory of the task's files (default: as in training)", None, metavar="DIR")
    input: str | None = finetuned(
        "texts in a TSV, CSV, JSONL, Parquet or CoNLL file, or SQuAD's JSON (default: the TEXTs)", None, metavar="FILE"
    )
    text_a: str | None = finetuned(
        "the column of the text or question (default: own.text_a or own.question in the run's config)",
        None,
        metavar="COLUMN",
    )
    text_b: str | None = finetuned(
        "the column of the second text or paragraph (default: own.text_b or own.context in the run's config)",
        None,
        metavar="COLUMN",
    )
    split: str | None = finetuned("predict the task's train, dev or test set (default: none)", None, metavar="SPLIT")
    pair: bool = finetuned("read pairs of texts, if the model does not record its task", False)
    output: str | None = option(
        "a .jsonl, .tsv or, for questions, .json file to write (default: print)", None, group="output", metavar="FILE"
    )
    json: bool = json_field("print JSON; for a fine-tuned model, one line per text")


def main(options: PredictFlags) -> int:
    from bertzoo.api.models import open_predictor
    from bertzoo.export.file_model import is_pretraining
    from bertzoo.runs.blanks import BlankFiller
    from bertzoo.train.step import keep_programs

    keep_programs()
    suffix = "" if is_pretraining(options.path) else output_suffix(options)  # raises before any prediction
    model = open_predictor(options, TASK_FLAGS)
    if isinstance(model, BlankFiller):
        return _fill(options, model)
    return predict(options, model, suffix)


def _fill(options: PredictFlags, model: "BlankFiller") -> int:
    from bertzoo.finetuning.task_kind import warn_unknown
    from bertzoo.runs.blanks import BLANK
    from bertzoo.tasks import readers

    texts = options.texts or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    examples = readers.from_texts([text.replace(BLANK, " ") for text in texts], readers.InputForm())
    warn_unknown(model.tokenizer, examples, "the texts")
    records = model.records(texts, options.top)
    if options.json:
        print(json.dumps(records, ensure_ascii=False))
        return 0
    for record in records:
        print(record["text"])
        for blank in record["blanks"]:
            print(f"    {', '.join(f'{token} {share:.0%}' for token, share in blank.items())}")
    return 0


def output_suffix(options: PredictFlags) -> str:
    """Return the output's suffix, such as ".jsonl", or "" for plain lines; raises UserError for a bad --output."""
    from bertzoo.tasks import predictions

    if not options.output:
        return ".jsonl" if options.json else ""
    suffix = predictions.output_format(options.output)
    check_file(options.output, f"--output={options.output}")
    return suffix


def predict(options: PredictFlags, model: "TaskModel", suffix: str) -> int:
    """Write the predictions in the order of the texts, and return the exit code. suffix: from `output_suffix`."""
    from bertzoo.finetuning.task_kind import warn_unknown
    from bertzoo.tasks import predictions
    from bertzoo.tasks.glue import GLUE

    model.task_class.unnamed(model)  # raises if the model predicts nothing
    questions = model.kind == "span"
    _check_output(options, model)
    if suffix == ".json" and not questions:
        raise UserError(
            f"--output={options.output} is for questions, but {options.path} predicts labels. Use .jsonl or .tsv."
        )
    if suffix == ".tsv" and model.kind == "multi_task":
        raise UserError(f"--output={options.output}: {options.path} has several predictions for a text. Use .jsonl.")
    if options.task:
        model = model.task(options.task, options.data_dir or "").adapt(model)
    texts = _read_texts(options, model, questions)
    unit = "questions" if questions else "texts"
    if not texts:
        log(f"there are no {unit}")
        return 0
    warn_unknown(model.tokenizer, texts, f"the {unit}")
    predicted = model.predict(texts, options.batch_size or 0)
    for count, state in predicted.counts:
        if count:
            log(f"{count:,} of {len(texts):,} {unit} {'is' if count == 1 else 'are'} {state}")
    task = GLUE.get(options.task or model.task_name)
    names = dict(zip(task.labels, task.class_names, strict=True)) if task else {}
    shown = (_format_line(text, record, names) for text, record in zip(texts, predicted.records, strict=True))
    lines = predictions.FORMATS[suffix](predicted.records) if suffix else shown
    text = "".join(f"{line}\n" for line in lines)
    if options.output:
        write_bytes(Path(options.output), text.encode())
    else:
        print(text, end="")
    return 0


def _check_output(options: PredictFlags, model: "TaskModel") -> None:
    """Raise UserError if --output would replace an input, or a file in the task's directory."""
    if not options.output:
        return
    output, directory = Path(options.output).resolve(), Path(options.data_dir or model.recipe.data_dir).resolve()
    custom = model.recipe.own
    files = {Path(options.input).resolve()} if options.input else set()
    if options.split:
        files |= {directory, *((directory / x).resolve() for x in (custom.train, custom.dev, custom.test) if x)}
    if output in files:
        raise UserError(f"--output={options.output} is an input. Name another file.")
    # Files of the task `own` are named above; every file in a directory of GLUE or SQuAD belongs to the task.
    if options.split and model.recipe.task != "own" and output.exists() and output.parent == directory:
        raise UserError(f"--output={options.output} is in the task's directory {directory}. Name another file.")


def _check_source(options: PredictFlags, questions: bool) -> None:
    """Raise UserError if flags name two sources of the texts, or a flag does not fit the source."""
    sources = [f"--{name}" for name in ("input", "split") if getattr(options, name)] + ["TEXT"] * bool(options.texts)
    if len(sources) > 1:
        raise UserError(f"{' and '.join(sources)} exclude each other, because each names the texts. Keep one.")
    for name in ("text_a", "text_b"):
        if getattr(options, name) and (not options.input or (questions and options.input.endswith(".json"))):
            raise UserError(f"--{name} names a column of a table. Add --input=TABLE.")
    if options.data_dir and not options.task and not options.split:
        raise UserError(
            f"--data_dir={options.data_dir} applies only to a task. Add --split or --task, or leave --data_dir out."
        )


def _read_split(options: PredictFlags, split: str, model: "TaskModel") -> Sequence[Any]:
    from bertzoo.finetuning.evaluate import check_files
    from bertzoo.finetuning.task_kind import log_skipped

    task = model.task(options.task or "", options.data_dir or "")
    directory = options.data_dir or model.recipe.data_dir
    check_files(model, directory, split, task.name)
    first, *others = task.data_sets(split)
    if others:
        raise UserError(
            f"--split={split} of {task.name} has the sets {' and '.join((first, *others))}. Use {first}, or another."
        )
    data = task.read(first, directory)
    log_skipped({first: data.skipped} if data.skipped else {}, "rows")
    return data.examples


def _read_texts(options: PredictFlags, model: "TaskModel", questions: bool) -> Sequence[Any]:
    """Return the texts, pairs or questions that the flags name, by default those of standard input."""
    from bertzoo.finetuning.evaluate import to_questions
    from bertzoo.tasks import readers, squad

    _check_source(options, questions)
    form = readers.InputForm(pair=options.pair or bool(options.text_b) or model.pair, words=model.kind == "tokens")
    has_form = options.split or questions or ((model.task_name or options.task) and not model.pair)
    if (options.pair and has_form) or (form.pair and form.words):
        raise UserError(
            f"--pair does not apply to {options.path}, whose task takes either single texts or pairs. Leave --pair out."
        )
    if options.split:
        return _read_split(options, options.split, model)
    if questions and options.input and options.input.endswith(".json"):
        return squad.read_questions(Path(options.input))
    files, origin = model.recipe.own, "standard input"
    if options.input:
        defaults = (files.question, files.context) if questions else (files.text_a, files.text_b)
        columns = [options.text_a or defaults[0], *([options.text_b or defaults[1]] if form.pair else [])]
        if not all(columns):
            raise UserError(f"--input={options.input} needs a column of second texts. Name the column with --text_b.")
        examples, origin = readers.from_table(options.input, columns, form, header=files.header), options.input
    elif options.texts:
        examples, origin = readers.from_texts(options.texts, form), "the command line"
    else:
        examples = readers.from_stdin(sys.stdin, form)
    return to_questions(examples, origin) if questions else examples


def _format_line(text: Any, record: dict[str, Any], names: dict[str, str]) -> str:
    """Return a prediction and its text as a line. names: class names to show instead of labels."""
    if "tags" in record:
        return " ".join(f"{word}/{tag or '-'}" for word, tag in zip(record["words"], record["tags"], strict=True))
    if "answer" in record:
        share = "" if record["probability"] is None else f" {record['probability']:.0%}"
        return f"{' '.join(record['answer'].split()) or '-'}{share}\t{_shortened(' '.join(text.text.split()))}"
    shown = _shortened(" | ".join(filter(None, (text.text_a, text.text_b))))
    if "heads" in record:
        lines = (f"{name}: {line}" for name, head in record["heads"].items() for line in _lines(head, names))
    elif "entities" in record:
        lines = _lines(record, names)
    else:
        return f"{_lines(record, names)[0]}\t{shown}"
    return "\n    ".join(" ".join(line.split()) for line in (shown, *lines))


def _lines(record: dict[str, Any], names: dict[str, str]) -> list[str]:
    """Return a prediction as text: a label, a number, or a line for each entity."""
    if "entities" in record:
        return [f"{e['start']}-{e['end']} {e['label']} {e['score']:.0%} {e['text']}" for e in record["entities"]]
    if "number" in record:
        return [f"{record['number']:.3f}"]
    if "labels" in record:
        shares = record["probabilities"]
        return [", ".join(f"{label} {shares[label]:.0%}" for label in record["labels"]) or "-"]
    label = "-" if record["label"] is None else names.get(record["label"], record["label"])
    return [f"{label} {record['probability']:.0%}"]


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]} …"
