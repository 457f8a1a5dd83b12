"""Score a written file and its model on examples from the development set of the task that the model learnt."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.export.graph.reference import GraphRunner, TrainingGraph
from bertzoo.export.litert.write import signature
from bertzoo.export.options import EXAMPLES
from bertzoo.finetuning import saved_model
from bertzoo.finetuning.evaluate import TaskModel, task_model
from bertzoo.finetuning.labels import LabelSplit, label_order
from bertzoo.finetuning.task_kind import Split, Unlabelled, log_skipped
from bertzoo.runs.runner import Outputs, RowRunner, Runner
from bertzoo.tasks.rows import Slot

_LOG = logging.getLogger(__name__)


class Quiz(NamedTuple):
    """Examples to score a file on.

    task: the task's name. split: the examples. name: the split's name. whole: number of examples in the whole split.
    convert_outputs: the method of the model's head.
    """

    task: str
    split: Split
    name: str
    whole: int
    convert_outputs: Callable[[Outputs], Outputs]


def build_quiz(source: Path, pretrained: Pretrained, longest: int, examples: int | None) -> Quiz | None:
    """Return evenly spaced examples from the first development set of the task that `source` is fine-tuned for.

    pretrained: the model to export. It may treat padding differently from the model in `source`.
    longest: tokens of the file's longest row.
    examples: number of examples; 0 for all, None for the default.

    If the model cannot be scored, raises UserError if `examples` is set, and otherwise returns None.
    """
    if not saved_model.is_finetuned(source) or not pretrained.head.task_kind:
        if examples is not None:
            raise UserError(
                f"--examples={examples} applies only to a fine-tuned model with its task's head. Leave --examples out."
            )
        return None
    most = EXAMPLES if examples is None else examples
    try:
        model = saved_model.load_saved(source)
        if not model.knows_task:
            raise UserError(
                f"{source} does not record the task it was trained on, so it cannot be scored. Convert a fine-tuning "
                "run, or score the file with `bertzoo evaluate --task=TASK`."
            )
        model = task_model(replace(model, pretrained=replace(model.pretrained, model=pretrained.model)))
        if longest < model.max_length:
            _LOG.info(f"{model.task_name}: scored on rows of {longest} tokens; training had {model.max_length}")
        quiz = _draw(model, pretrained, longest, most)
    except UserError as error:
        if examples is not None:
            raise
        _LOG.info(f"the task's scores were not measured: {error}")
        return None
    if (count := len(quiz.split.examples)) < quiz.whole:
        _LOG.info(
            f"{model.task_name}, {quiz.name}: scored on {count:,} of {quiz.whole:,} examples (--examples=0 takes all)"
        )
    return quiz


def _draw(model: TaskModel, pretrained: Pretrained, longest: int, most: int) -> Quiz:
    task = model.task()
    model, labels = task.adapt(model).fit(longest), pretrained.head.labels
    if labels and label_order(labels, task.task, str(model.path)) not in (None, [*range(len(labels))]):
        raise UserError(
            f"{task.name} has the labels {', '.join(task.task.labels)}, but the model has them in the order "
            f"{', '.join(labels)}. Fine-tune the model again on this task."
        )
    if not task.dev:
        raise UserError(f"{task.name} has no development set. Fine-tune the model again with --own.dev=FILE.")
    dev = task.dev[0]
    read = task.read(dev, model.recipe.data_dir)
    log_skipped({dev: read.skipped} if read.skipped else {}, "rows")
    try:
        task.check_labels(dev, read)
    except Unlabelled as error:
        cure = "Add labels to the file of this set."
        if model.kind == "embedding":
            cure = "Score the file with `bertzoo evaluate --task=stsb` or `--task=retrieval`."
        raise UserError(f"{error} {cure}") from error
    split = model.encode(task, draw_evenly(read.examples, most), dev)
    return Quiz(model.task_name, split, dev, len(read.examples), pretrained.head.convert_outputs)


def draw_evenly(examples: Sequence[Any], most: int) -> list[Any]:
    """Return at most `most` evenly spaced examples, or all if `most` is 0."""
    count = min(most or len(examples), len(examples))
    return [examples[index * len(examples) // count] for index in range(count)]


def score_file(
    run: Runner, reference: TrainingGraph, quiz: Quiz, lengths: Sequence[int]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the scores of file and model, and the content of exam.json.

    The content is None unless the model predicts one label or a number for each example.
    run: the file. reference: the model. Every row runs at the shortest of `lengths` (in tokens) that holds it.
    """
    split: Any = quiz.split  # each kind of split scores its own predictions
    file, model = (
        RowRunner(one, reference.inputs, lengths, quiz.convert_outputs) for one in (run, GraphRunner(reference))
    )
    slots, outputs = file.run_all(split)
    task = {"task": quiz.task, "split": quiz.name, "of": quiz.whole}
    scores = {
        "examples": len(split.examples),
        "file": split.scores(split.predict(slots, outputs)),
        "model": split.scores(split.predict(*model.run_all(split))),
    }
    if not isinstance(split, LabelSplit) or split.task.kind in ("tokens", "multi_label"):
        return task | scores, None
    return task | scores, task | _exam(split, slots, outputs, reference.inputs)


def _exam(split: LabelSplit, slots: Sequence[Slot], outputs: Sequence[Outputs], names: Sequence[str]) -> dict[str, Any]:
    """Return the content of exam.json; names: of the file's inputs."""
    rows: list[dict[str, Any]] = [{} for _ in slots]
    for slot, output in zip(slots, outputs, strict=True):
        batch, index = split.batch(slot, 1), int(slot.rows[0])
        rows[index] = {
            "signature": signature(slot.length),
            "inputs": {name: batch[name][0].tolist() for name in names},
            "label": split.examples[index].label,
            "logits": output["logits"][0].tolist(),
        }
    return {"kind": split.task.kind, "metrics": split.task.metrics, "scale": split.scale, "rows": rows}
