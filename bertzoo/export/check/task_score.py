"""Score a written file and its model on the task that the model was fine-tuned for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np

from bertzoo.export.graph.reference import TrainingGraph
from bertzoo.export.litert.write import signature
from bertzoo.export.runtimes import FileRuntime
from bertzoo.nn import span_candidates
from bertzoo.tasks import metrics
from bertzoo.tasks.answers import Answered, Decoding, decode
from bertzoo.tasks.rows import Rows, Slot
from bertzoo.tasks.squad_tasks import SpanTask
from bertzoo.tasks.task import Example, Task
from bertzoo.tasks.windows import Windows

Outputs = Sequence[Mapping[str, np.ndarray]]  # one mapping per row; arrays have a first axis of 1


class Quiz(Protocol):
    """Labelled examples of a task's split, with methods that turn outputs into predictions and scores.

    share: (number of these examples, number of examples in the whole split). rows: the examples as model inputs.
    """

    @property
    def name(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def share(self) -> tuple[int, int]: ...
    @property
    def rows(self) -> "Rows | Windows": ...
    def predict(self, slots: Sequence[Slot], outputs: Outputs) -> Any: ...
    def scores(self, predictions: Any) -> dict[str, float]: ...


def score_file(
    run: FileRuntime, reference: TrainingGraph, quiz: Quiz, lengths: Sequence[int]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the scores of file and model, and the content of exam.json.

    The content is None if the model predicts word tags, answers to questions or several labels of a text.
    run: the file. reference: the model. Every row runs at the shortest of `lengths` (in tokens) that holds it.
    """
    model = jax.jit(
        lambda graph, row: {name: y[None] for name, y in graph(**{name: x[0] for name, x in row.items()}).items()}
    )
    slots = quiz.rows.plan(1, lengths)
    batches = (quiz.rows.batch(slot, 1) for slot in slots)
    inputs = [{name: batch[name] for name in reference.inputs} for batch in batches]
    predictions = quiz.predict(slots, [run(row) for row in inputs])
    count, whole = quiz.share
    task = {"task": quiz.name, "split": quiz.split, "of": whole}
    scores = {
        "examples": count,
        "file": quiz.scores(predictions),
        "model": quiz.scores(quiz.predict(slots, [jax.device_get(model(reference, row)) for row in inputs])),
    }
    if not isinstance(quiz, Labels) or quiz.task.kind in ("tokens", "multi_label"):
        return task | scores, None
    return task | scores, task | quiz.exam(slots, inputs, predictions)


@dataclass(frozen=True, kw_only=True)
class Labels:
    """A Quiz (labelled examples to score a file on) with classes, sets of classes, word tags or numbers as labels.

    whole: number of examples in the whole split. scale: factor from a regression's output to the predicted number.
    """

    task: Task
    split: str
    examples: Sequence[Example]
    whole: int
    rows: Rows
    scale: float

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def share(self) -> tuple[int, int]:
        return len(self.examples), self.whole

    def predict(self, slots: Sequence[Slot], outputs: Outputs) -> Any:
        """Return logits (examples, labels) in the order of the examples or, for tagging, each example's word tags.

        slots: which example each output belongs to.
        """
        logits = [label_logits(output, self.task.kind == "multi_label") for output in outputs]
        if self.task.kind == "tokens":
            return self.rows.restore_words(slots, [array.argmax(-1) for array in logits])
        return self.rows.restore(slots, logits)

    def scores(self, predictions: Any) -> dict[str, float]:
        """Return the task's metrics by name."""
        if self.task.kind == "regression":
            predictions = predictions[:, 0] * self.scale
        elif self.task.kind == "multi_label":
            predictions = predictions > 0
        elif self.task.kind != "tokens":
            predictions = predictions.argmax(-1)
        return metrics.score(self.task, predictions, [example.label for example in self.examples])

    def exam(self, slots: Sequence[Slot], inputs: Outputs, logits: np.ndarray) -> dict[str, Any]:
        """Return the content of exam.json: for each example its signature, inputs, label and the file's logits."""
        rows: list[dict[str, Any]] = [{} for _ in slots]
        for slot, row in zip(slots, inputs, strict=True):
            arrays = {name: array[0].tolist() for name, array in row.items()}
            rows[int(slot.rows[0])] = {"signature": signature(slot.length), "inputs": arrays}
        for row, example, values in zip(rows, self.examples, logits, strict=True):
            row |= {"label": example.label, "logits": values.tolist()}
        return {"kind": self.task.kind, "metrics": self.task.metrics, "scale": self.scale, "rows": rows}


@dataclass(frozen=True, kw_only=True)
class Questions:
    """A Quiz (labelled examples to score a file on) of questions on texts. whole: number of questions in the split."""

    task: SpanTask
    split: str
    whole: int
    rows: Windows
    decoding: Decoding

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def share(self) -> tuple[int, int]:
        return len(self.rows.questions), self.whole

    def predict(self, slots: Sequence[Slot], outputs: Outputs) -> list[Answered]:
        """Return an answer to each question, decoded from the outputs for the windows of its text."""
        return decode(self.rows, self.rows.restore(slots, decodable(outputs)), self.decoding)

    def scores(self, predictions: list[Answered]) -> dict[str, float]:
        """Return SQuAD's official metrics by name."""
        return self.task.score(self.rows.questions, predictions, self.decoding.threshold)


def label_logits(output: Mapping[str, np.ndarray], several: bool = False) -> np.ndarray:
    """Return a file's logits. If the file returns probabilities instead, compute logits from them.

    several: whether the probabilities are sigmoids, one for each of several labels, instead of a softmax.
    """
    if "logits" in output:
        return output["logits"]
    p = np.maximum(output["probabilities"], np.finfo(np.float32).tiny)
    return np.log(p) - np.log(np.maximum(1 - p, np.finfo(np.float32).tiny)) if several else np.log(p)


def decodable(outputs: Outputs) -> list[dict[str, np.ndarray]]:
    """Convert a file's outputs to the input of `tasks.answers.decode`.

    Outputs of a joint span head become scores of candidate answers.
    """
    return [_joint_candidates(output) if "null_logit" in output else dict(output) for output in outputs]


def _joint_candidates(output: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = ("start_logits", "starts", "end_logits", "null_logit")
    start_BL, starts_BK, end_BKL, null_B1 = (jax.numpy.asarray(output[name]) for name in names)
    return jax.device_get(span_candidates(start_BL, starts_BK, end_BKL, null_B1[:, 0]))
