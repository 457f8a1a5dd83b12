"""What a model says of examples, and how well that is."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from bertzoo.finetuning.task_kind import Judged
from bertzoo.objectives.labelled import TERM, LabelledObjective
from bertzoo.tasks import metrics
from bertzoo.tasks.rows import Rows, Slot
from bertzoo.tasks.task import Example, Task
from bertzoo.train.step import Batch, put_batch

INPUTS = ("input_ids", "token_type_ids", "attention_mask")


class Split(NamedTuple):
    """Examples and their rows, in one order."""

    examples: list[Example]
    rows: Rows


class Planned(Protocol):
    """Rows, of labels or of windows, that make batches."""

    def plan(self, batch_size: int, lengths: Sequence[int]) -> list[Slot]: ...
    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]: ...


class Predictor:
    """Runs a function (params, batch) -> (B,…) over rows, in batches of few lengths; one program for each."""

    def __init__(self, function: Callable[[Any, Batch], Any], mesh: jax.sharding.Mesh, batch_size: int):
        self._function, self._mesh, self._batch_size = jax.jit(function), mesh, batch_size

    def __call__(
        self, params: Any, rows: Planned, lengths: Sequence[int], scale: float
    ) -> tuple[list[Slot], list[Any]]:
        """The batches, and what came of each."""
        slots = rows.plan(self._batch_size, lengths)
        made = (scaled(rows.batch(slot, self._batch_size), scale) for slot in slots)
        return slots, [jax.device_get(self._function(params, put_batch(batch, self._mesh))) for batch in made]


def scaled(batch: dict[str, np.ndarray], scale: float) -> dict[str, np.ndarray]:
    """The batch with its numbers as they are learnt."""
    if scale != 1 and "label" in batch:
        return {**batch, "label": (batch["label"] / scale).astype(np.float32)}
    return batch


class Judge:
    """Predicts and scores splits of a task."""

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

        def both(params: Any, batch: Batch) -> Any:
            """The logits and, where there are labels, their loss and its weight."""
            logits = objective.logits(params, batch, None)
            return logits, objective(params, None, batch, None)[1][f"{TERM}_loss"] if "label" in batch else (0.0, 0.0)

        self._predictor = Predictor(both, mesh, batch_size)

    def predict(self, params: Any, rows: Rows) -> tuple[Any, float]:
        """Classes (N,), numbers (N,) or each word's class, in the order of the examples, and the mean loss."""
        slots, found = self._predictor(params, rows, self._lengths, self._scale)
        logits, losses = [logits for logits, _ in found], np.array([loss for _, loss in found], np.float64).sum(0)
        loss = float(losses[0] / losses[1]) if losses[1] else 0.0
        if self._task.kind == "tokens":
            return rows.restore_words(slots, [each.argmax(-1) for each in logits]), loss
        whole = rows.restore(slots, logits)
        return whole[:, 0] * self._scale if self._task.kind == "regression" else whole.argmax(-1), loss

    def __call__(self, params: Any, splits: dict[str, Split]) -> Judged:
        """The scores of every split, the mean of all as the one `score`, the mean loss, and whether every row, or word,
        of every split got one class.
        """
        scores, losses, classes = {}, [], set()
        for name, split in splits.items():
            predictions, loss = self.predict(params, split.rows)
            if self._task.kind == "regression" and not np.isfinite(predictions).all():
                loss = float("nan")  # which ends the run, in a sentence
                scores[name] = dict.fromkeys(self._task.metrics, 0.0)
            else:
                scores[name] = metrics.score(self._task, predictions, [example.label for example in split.examples])
            losses.append(loss)
            classes |= self._classes(predictions)
        values = [value for found in scores.values() for value in found.values()]
        return {
            "loss": float(np.mean(losses)),
            "score": float(np.mean(values)),
            "collapsed": len(classes) == 1,
            "scores": scores,
        }

    def _classes(self, predictions: Any) -> set[int]:
        """Those that are predicted; of numbers all that are alike are one."""
        if self._task.kind == "regression":
            return set(np.round(predictions / self._scale, 6).tolist())
        found = np.concatenate(predictions) if self._task.kind == "tokens" else predictions
        return set(np.unique(found).tolist()) - {-1}  # the class of a word that was cut off
