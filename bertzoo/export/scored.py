"""The metric of a fine-tuned model's task, of a written file beside the model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from bertzoo.export.plain import Plain
from bertzoo.export.runtimes import Runtime
from bertzoo.tasks import metrics
from bertzoo.tasks.rows import Rows
from bertzoo.tasks.task import Example, Task

Function = Callable[[Mapping[str, np.ndarray]], np.ndarray]  # inputs of a row -> logits


@dataclass(frozen=True, kw_only=True)
class Quiz:
    """Labelled examples of a task, their rows, none longer than the file reads, and what numbers are multiplied by."""

    task: Task
    split: str
    examples: Sequence[Example]
    rows: Rows
    scale: float


def scored(run: Runtime, plain: Plain, quiz: Quiz, lengths: Sequence[int]) -> dict[str, Any]:
    """The task, the split, how many examples, and in points the scores of the file and of the model, read alike: every
    example in the shortest length that holds it.
    """
    reference = jax.jit(lambda plain, row: plain(**{name: array[0] for name, array in row.items()})["logits"][None])
    return {
        "task": quiz.task.name,
        "split": quiz.split,
        "examples": len(quiz.examples),
        "file": _scores(lambda row: run(row)["logits"], plain.inputs, quiz, lengths),
        "model": _scores(lambda row: np.asarray(reference(plain, row)), plain.inputs, quiz, lengths),
    }


def _scores(
    function: Callable[[Mapping[str, np.ndarray]], np.ndarray],
    inputs: Sequence[str],
    quiz: Quiz,
    lengths: Sequence[int],
) -> dict[str, float]:
    rows, kind = quiz.rows, quiz.task.kind
    slots = rows.plan(1, lengths)
    batches = (rows.batch(slot, 1) for slot in slots)
    logits = [function({name: batch[name] for name in inputs}) for batch in batches]
    labels = [example.label for example in quiz.examples]
    if kind == "tokens":
        return metrics.score(quiz.task, rows.restore_words(slots, [each.argmax(-1) for each in logits]), labels)
    whole = rows.restore(slots, logits)
    return metrics.score(quiz.task, whole[:, 0] * quiz.scale if kind == "regression" else whole.argmax(-1), labels)
