"""Run a model on encoded examples, and score its predictions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from bertzoo.finetuning.task_kind import Figures
from bertzoo.objectives.labelled import TERM, LabelledObjective
from bertzoo.tasks import metrics
from bertzoo.tasks.rows import Rows, Slot
from bertzoo.tasks.task import Example, Task
from bertzoo.train.step import Batch, put_batch


class LabelSplit(NamedTuple):
    """Examples and their encoded rows, in the same order."""

    examples: list[Example]
    rows: Rows


class Planned(Protocol):
    """The interface that `tasks.rows.Rows` and `tasks.windows.Windows` share: plan batches and build them."""

    def plan(self, batch_size: int, lengths: Sequence[int]) -> list[Slot]: ...
    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]: ...


class Predictor:
    """Runs a function (params, batch) -> outputs on batches of rows; compiles one program for each length."""

    def __init__(self, function: Callable[[Any, Batch], Any], mesh: jax.sharding.Mesh, batch_size: int):
        self._function, self._mesh, self._batch_size = jax.jit(function), mesh, batch_size

    def __call__(
        self, params: Any, rows: Planned, lengths: Sequence[int], scale: float
    ) -> tuple[list[Slot], list[Any]]:
        """Return each batch's Slot (row indices, length) and output. scale: divisor of numeric labels."""
        slots = rows.plan(self._batch_size, lengths)
        batches = (scaled(rows.batch(slot, self._batch_size), scale) for slot in slots)
        return slots, [jax.device_get(self._function(params, put_batch(batch, self._mesh))) for batch in batches]


def scaled(batch: dict[str, np.ndarray], scale: float) -> dict[str, np.ndarray]:
    """Return the batch with its numeric labels divided by `scale`."""
    if scale != 1 and "label" in batch:
        return {**batch, "label": (batch["label"] / scale).astype(np.float32)}
    return batch


class LabelScorer:
    """Predicts labels of a task's splits with given parameters, and scores the predictions."""

    def __init__(
        self,
        task: Task,
        objective: LabelledObjective,
        mesh: jax.sharding.Mesh,
        *,
        batch_size: int,
        lengths: Sequence[int],
        scale: float = 1.0,
    ):
        self._task, self._lengths, self._scale = task, lengths, scale

        def logits_and_loss(params: Any, batch: Batch) -> Any:
            """Return (logits, (sum of losses, sum of weights)); without labels, both sums are 0."""
            logits = objective.logits(params, batch, None)
            return logits, objective(params, None, batch, None)[1][f"{TERM}_loss"] if "label" in batch else (0.0, 0.0)

        self._predictor = Predictor(logits_and_loss, mesh, batch_size)

    def predict(self, params: Any, rows: Rows) -> tuple[Any, float]:
        """Return predictions as `label_values` does, and the mean loss (0 without labels)."""
        slots, results = self._predictor(params, rows, self._lengths, self._scale)
        logits, losses = [logits for logits, _ in results], np.array([loss for _, loss in results], np.float64).sum(0)
        loss = float(losses[0] / losses[1]) if losses[1] else 0.0
        return label_values(self._task, rows, slots, logits, self._scale), loss

    def __call__(self, params: Any, splits: dict[str, LabelSplit]) -> Figures:
        """Score splits; return the figures of `label_figures`, and the splits' mean `loss`."""
        predictions, losses = {}, []
        for name, split in splits.items():
            predictions[name], loss = self.predict(params, split.rows)
            finite = self._task.kind != "regression" or np.isfinite(predictions[name]).all()
            losses.append(loss if finite else float("nan"))  # train.loop raises NonFinite for it
        examples = {name: split.examples for name, split in splits.items()}
        return {"loss": float(np.mean(losses)), **label_figures(self._task, predictions, examples, self._scale)}


def label_values(task: Task, rows: Rows, slots: Sequence[Slot], logits: Sequence[np.ndarray], scale: float) -> Any:
    """Convert logits of batches to predictions, in the order of the examples.

    The kind of the task decides what a prediction is:
    classification: index of the class, (N,).
    multi_label: 0 or 1 for each of C labels, (N,C).
    regression: a number, (N,).
    tokens: for each example, an array with the class index of each word.

    scale: a regression's output times `scale` is the predicted number.
    """
    if task.kind == "tokens":
        return rows.restore_words(slots, [batch.argmax(-1) for batch in logits])
    whole = rows.restore(slots, logits)
    if task.kind == "multi_label":
        return (whole > 0).astype(np.int32)
    return whole[:, 0] * scale if task.kind == "regression" else whole.argmax(-1)


def label_figures(
    task: Task, predictions: Mapping[str, Any], examples: Mapping[str, Sequence[Example]], scale: float
) -> Figures:
    """Score predictions; return a dict.

    scores: by split and metric; 0 for a split with a predicted number that is not finite.
    score: mean of all scores; for multi_label, mean of the first metric's scores (by default micro-F1).
    collapsed: whether all predictions are equal; numbers, divided by `scale`, are compared to 6 decimals.

    predictions: by split, as `label_values` returns them.
    examples: by split, with labels.
    """
    scores, classes = {}, set()
    for name, values in predictions.items():
        if task.kind == "regression" and not np.isfinite(values).all():
            scores[name] = dict.fromkeys(task.metrics, 0.0)
        else:
            scores[name] = metrics.score(task, values, [example.label for example in examples[name]])
        classes |= _classes(task, values, scale)
    deciding = task.metrics[:1] if task.kind == "multi_label" else task.metrics
    return {
        "score": float(np.mean([named[metric] for named in scores.values() for metric in deciding])),
        "collapsed": len(classes) == 1,
        "scores": scores,
    }


def _classes(task: Task, predictions: Any, scale: float) -> set[Any]:
    """Return the distinct predictions; numbers, divided by `scale`, are rounded to 6 decimals."""
    if task.kind == "regression":
        return set(np.round(predictions / scale, 6).tolist())
    if task.kind == "multi_label":
        return set(map(tuple, predictions.tolist()))
    classes = np.concatenate(predictions) if task.kind == "tokens" else predictions
    return set(np.unique(classes).tolist()) - {-1}  # -1: a word that was cut off
