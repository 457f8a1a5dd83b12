"""Scores and predictions of a fine-tuned model, whatever its task."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk
from bertzoo.finetuning import predict_answers, predict_labels, saved_model
from bertzoo.finetuning.predict_answers import Answering
from bertzoo.finetuning.predict_labels import Trained
from bertzoo.tasks import inputs, predictions
from bertzoo.tasks.squad import Question
from bertzoo.tasks.task import Example, Read, Task

Say = Callable[[str], None]


def _unheard(line: str) -> None:
    pass


def load(path: Path | str, seed: int | None = None) -> Trained | Answering:
    """The model of a fine-tuning run's best seed, or of `seed`, or of a model directory; raises UserError."""
    found = saved_model.read(on_disk(path, "the model", "copy it to this machine and name the copy"), seed)
    return predict_answers.of(found) or predict_labels.of(found)


def evaluate(
    model: Trained | Answering,
    *,
    split: str = "dev",
    task: str = "",
    data_dir: str = "",
    batch_size: int = 0,
    output: Path | None = None,
    tell: Say = _unheard,
) -> dict[str, Any]:
    """Score a model on a split of its task, or of the task of that name.

    Returns `task`, `examples` by split, `scores` by split and metric, in points, `loss` and `collapsed`. output: the
    directory for the answers of a model of questions. Raises UserError where the split has no labels.
    """
    directory = data_dir or model.recipe.data_dir
    if isinstance(model, Answering):
        spans = model.task(task)
        model = model.of(spans)
        asked = model.asked(spans, split, directory)  # pyright: ignore[reportArgumentType] (a split by name)
        if asked.hidden:
            raise UserError(
                f"the {split} set of {spans.name} has no answers to score by; `bertzoo predict {model.path} "
                f"--split={split}` says what the model answers"
            )
        if model.recipe.squad.heldout and split != "test":
            which = "held out" if split == "dev" else "not held out"
            tell(f"{split}: questions on texts that were {which} by squad.heldout")
        judged, save = model.judge(spans, asked.questions, split, batch_size)
        if output is not None:
            save(output)
        return {"task": spans.name, "examples": {split: len(asked.questions)}, **judged}
    labelled = model.task(task, data_dir)
    model = model.of(labelled, tell)
    splits = {"train": labelled.train, "dev": labelled.dev, "test": labelled.test}.get(split, ())
    if not splits:
        raise UserError(f"{labelled.name} has no {split} set")
    examples = {}
    for part in splits:
        read = read_split(labelled, part, directory, tell)
        if unknown := sum(example.label is None for example in read.examples):
            some = f"has no label in {unknown:,} of its {len(read.examples):,} examples"
            raise UserError(
                f"the {part} set of {labelled.name} {some}, which cannot be scored; `bertzoo predict {model.path} "
                f"--split={split}` says what the model makes of it"
            )
        examples[part] = read.examples
    judged = model.judge(labelled, examples, batch_size)
    return {"task": labelled.name, "examples": {part: len(found) for part, found in examples.items()}, **judged}


def read_split(task: Task, split: str, directory: str, tell: Say) -> Read:
    """A split of a task's files; tells how many rows are passed over."""
    read = task.read(split, directory)
    for reason, count in read.skipped.items():
        tell(f"{split}: passed over {count} rows ({reason})")
    return read


def predict(model: Trained | Answering, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Apply a model to texts, or to pairs of texts, in their order; the records of `tasks.predictions`.

    A model of questions takes pairs of a question and the text that holds its answer.
    """
    pair = isinstance(model, Answering) or model.pair or any(not isinstance(text, str) for text in texts)
    words = isinstance(model, Trained) and model.kind == "tokens"
    flat = [part for text in texts for part in ((text,) if isinstance(text, str) else text)]
    examples = inputs.words(flat, inputs.Wanted(pair=pair, words=words))
    if isinstance(model, Answering):
        return list(predictions.answers(model.answer(questions(examples, "the texts")).found))
    found = model.predict(examples)
    return list(predictions.records(examples, model.labels, found.values, found.probabilities, found.cut))


def questions(examples: Sequence[Example], origin: str) -> list[Question]:
    """Pairs of texts as questions; `origin` says in messages where they are from."""
    return [
        Question(one.key, one.text_a, one.text_b or "", (), False, "", f"{origin} question {int(one.key) + 1}")
        for one in examples
    ]
