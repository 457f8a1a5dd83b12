"""The metric of a fine-tuned model's task, of a written file beside the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from bertzoo.export.litert import signature
from bertzoo.export.plain import Plain
from bertzoo.export.runtimes import Runtime
from bertzoo.tasks import metrics
from bertzoo.tasks.rows import Rows, Slot
from bertzoo.tasks.task import Example, Task


@dataclass(frozen=True, kw_only=True)
class Quiz:
    """Labelled examples of a task, their rows, none longer than the file reads, and what numbers are multiplied by."""

    task: Task
    split: str
    examples: Sequence[Example]
    rows: Rows
    scale: float


def scored(run: Runtime, plain: Plain, quiz: Quiz, lengths: Sequence[int]) -> tuple[dict[str, Any], dict | None]:
    """The task, the split, how many examples, and in points the scores of the file and of the model, read alike: every
    example in the shortest length that holds it. And the same examples as a device is asked them: what they are scored
    by, and in their order inputs, label and the file's logits here; None of words, which a device is not asked.
    """
    reference = jax.jit(lambda plain, row: plain(**{name: array[0] for name, array in row.items()})["logits"][None])
    slots = quiz.rows.plan(1, lengths)
    batches = (quiz.rows.batch(slot, 1) for slot in slots)
    given = [{name: batch[name] for name in plain.inputs} for batch in batches]
    logits = [run(row)["logits"] for row in given]
    said = {"task": quiz.task.name, "split": quiz.split}
    scores = {
        "examples": len(quiz.examples),
        "file": _scores(quiz, slots, logits),
        "model": _scores(quiz, slots, [np.asarray(reference(plain, row)) for row in given]),
    }
    if quiz.task.kind == "tokens":
        return said | scores, None
    rows = [dict[str, Any]() for _ in quiz.examples]
    for slot, row, output in zip(slots, given, logits, strict=True):
        place = int(slot.rows[0])
        rows[place] = {
            "signature": signature(slot.length),
            "inputs": {name: array[0].tolist() for name, array in row.items()},
            "label": quiz.examples[place].label,
            "logits": output[0].tolist(),
        }
    how = {"kind": quiz.task.kind, "metrics": quiz.task.metrics, "scale": quiz.scale}
    return said | scores, said | how | {"rows": rows}


def _scores(quiz: Quiz, slots: Sequence[Slot], logits: Sequence[np.ndarray]) -> dict[str, float]:
    rows, kind = quiz.rows, quiz.task.kind
    labels = [example.label for example in quiz.examples]
    if kind == "tokens":
        return metrics.score(quiz.task, rows.restore_words(slots, [each.argmax(-1) for each in logits]), labels)
    whole = rows.restore(slots, logits)
    return metrics.score(quiz.task, whole[:, 0] * quiz.scale if kind == "regression" else whole.argmax(-1), labels)
