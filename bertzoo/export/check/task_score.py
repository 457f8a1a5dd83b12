"""Score a written file and its model on the task that the model was fine-tuned for."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bertzoo.export.graph.reference import GraphRunner, TrainingGraph
from bertzoo.export.litert.write import signature
from bertzoo.finetuning.labels import LabelSplit
from bertzoo.finetuning.scoring import Split
from bertzoo.runs.runner import Outputs, RowRunner, Runner
from bertzoo.tasks.rows import Slot


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
    """Return the content of exam.json: for each example its signature, inputs, label and the file's logits.

    names: names of the file's inputs.
    """
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
