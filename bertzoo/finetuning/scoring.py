"""Score a model on encoded examples: in training, of a saved model, and of an exported file."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as change
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertzoo.finetuning.text_split import TextSplit
from bertzoo.heads.labels import TEACHER
from bertzoo.runs.runner import Outputs, Runner
from bertzoo.tasks import metrics, squad_metric
from bertzoo.tasks.answers import Answered, Decoding, decode
from bertzoo.tasks.rows import Rows, Slot
from bertzoo.tasks.squad import Question
from bertzoo.tasks.squad_tasks import SpanTask
from bertzoo.tasks.task import Example, Task
from bertzoo.tasks.windows import Windows
from bertzoo.train.step import Batch

LOSSES = "losses"  # in a runner's outputs: {loss term: (sum of losses, sum of weights)} of a batch with labels
Figures = dict[str, Any]  # loss, score, collapsed, and scores: {split: {metric: points}}


class Evaluation(NamedTuple):
    """A model's `figures` (loss and scores), and a function that writes the model's predictions into a folder."""

    figures: Figures
    save: Callable[[Path], object]


@dataclass(frozen=True, kw_only=True)
class LabelSplit:
    """Encoded examples of a split, with classes, sets of classes, word tags or numbers as labels.

    scale: a regression's output times `scale` is the predicted number.
    teacher: a teacher's logits for each example and class, (N,C), to train on; None without.
    """

    task: Task
    examples: Sequence[Example]
    rows: Rows
    scale: float = 1.0
    teacher: np.ndarray | None = None

    @property
    def deciding(self) -> tuple[str, ...]:
        """Names of the metrics whose mean is the score: all or, for multi_label, the first (by default micro-F1)."""
        return self.task.metrics[:1] if self.task.kind == "multi_label" else self.task.metrics

    @property
    def digest(self) -> str:
        """SHA-256 of the examples as the model reads them, in hexadecimal."""
        return self.rows.digest

    def __len__(self) -> int:
        return len(self.rows)

    def plan(self, batch_size: int, lengths: Sequence[int], seed: int | None = None, epoch: int = 0) -> list[Slot]:
        return self.rows.plan(batch_size, lengths, seed, epoch)

    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]:
        """Return the arrays of a planned batch, by name; numbers are divided by `scale`."""
        batch = self.rows.batch(slot, batch_size)
        if self.teacher is not None:
            batch[TEACHER] = np.zeros((batch_size, self.teacher.shape[1]), np.float32)
            batch[TEACHER][: len(slot.rows)] = self.teacher[slot.rows]
        if self.scale != 1 and "label" in batch:
            return {**batch, "label": (batch["label"] / self.scale).astype(np.float32)}
        return batch

    def predict(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> Any:
        """Return predictions in the order of the examples.

        The kind of the task decides what a prediction is:
        classification: index of the class, (N,).
        multi_label: 0 or 1 for each of C labels, (N,C).
        regression: a number, (N,).
        tokens: for each example, an array with the class index of each word.
        """
        logits = [output["logits"] for output in outputs]
        if self.task.kind == "tokens":
            return self.rows.restore_words(slots, [batch.argmax(-1) for batch in logits])
        whole = self.rows.restore(slots, logits)
        if self.task.kind == "multi_label":
            return (whole > 0).astype(np.int32)
        return whole[:, 0] * self.scale if self.task.kind == "regression" else whole.argmax(-1)

    def is_finite(self, predictions: Any) -> bool:
        return self.task.kind != "regression" or bool(np.isfinite(predictions).all())

    def scores(self, predictions: Any) -> dict[str, float]:
        """Return the task's metrics by name; 0 if a predicted number is not finite."""
        if not self.is_finite(predictions):
            return dict.fromkeys(self.task.metrics, 0.0)
        return metrics.score(self.task, predictions, [example.label for example in self.examples])

    def distinct(self, predictions: Any) -> set[Any]:
        """Return the distinct predictions; numbers, divided by `scale`, are rounded to 6 decimals."""
        if self.task.kind == "regression":
            return set(np.round(predictions / self.scale, 6).tolist())
        if self.task.kind == "multi_label":
            return set(map(tuple, predictions.tolist()))
        classes = np.concatenate(predictions) if self.task.kind == "tokens" else predictions
        return set(np.unique(classes).tolist()) - {-1}  # -1: a word that was cut off


@dataclass(frozen=True, kw_only=True)
class AnswerSplit:
    """Questions of a split, encoded as windows of their paragraphs; it has the methods of LabelSplit.

    decoding: how answers are chosen.
    """

    task: SpanTask
    windows: Windows
    decoding: Decoding

    @property
    def deciding(self) -> tuple[str, ...]:
        return (self.task.chosen_by,)

    @property
    def examples(self) -> Sequence[Question]:
        return self.windows.questions

    @property
    def rows(self) -> Rows:
        return self.windows.rows

    @property
    def digest(self) -> str:
        return self.windows.digest

    def __len__(self) -> int:
        return len(self.rows)

    def plan(self, batch_size: int, lengths: Sequence[int], seed: int | None = None, epoch: int = 0) -> list[Slot]:
        return self.rows.plan(batch_size, lengths, seed, epoch)

    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]:
        return self.windows.batch(slot, batch_size)

    def predict(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> list[Answered]:
        """Return an answer to each question; raises UserError if an output is not finite."""
        named = [{name: array for name, array in output.items() if name != LOSSES} for output in outputs]
        return decode(self.windows, self.windows.restore(slots, named) if slots else [], self.decoding)

    def scores(self, predictions: list[Answered]) -> dict[str, float]:
        """Return SQuAD's official metrics by name."""
        return self.task.score(self.windows.questions, predictions, self.decoding.threshold)

    def distinct(self, predictions: list[Answered]) -> set[Any]:
        """Return the distinct answers, or none for a single question, whose answer proves no collapse."""
        return {answer.text for answer in predictions} if len(predictions) > 1 else set()


Split = LabelSplit | AnswerSplit | TextSplit


@functools.lru_cache(maxsize=16)  # each of a run's seeds would trace the model again, for seconds
def outputs_and_losses(objective: Any) -> Callable[[Any, Batch], Outputs]:
    """Return a function (params, batch) -> outputs of a model, and its LOSSES if the batch has labels."""
    mean = change(objective, reduction="mean")

    def function(params: Any, batch: Batch) -> Outputs:
        outputs = mean.predict(params, batch)
        if not batch.keys() & {"label", "start"}:
            return outputs
        sums, weights = mean(params, None, batch, None)[0], mean.weights(batch)
        return outputs | {LOSSES: {term: (sums[term], weights[term]) for term in sums}}

    return function


def score_splits(runner: Runner, splits: Mapping[str, Split]) -> Evaluation:
    """Run a model on splits by name, and score its predictions.

    The figures are:
    loss: the mean over the splits; absent if the runner computes no loss.
    score: mean of the deciding scores.
    collapsed: whether all predictions are equal.
    scores: by split and metric.

    If the loss for questions is not finite, there are no scores.
    """
    predictions, losses = dict[str, Any](), []
    for name, split in splits.items():
        slots, outputs = runner.run_all(split)
        loss = _mean_loss(outputs)
        if loss is not None and not np.isfinite(loss) and isinstance(split, AnswerSplit):
            figures = {"loss": loss, "score": 0.0, "collapsed": False, "scores": {name: {}}}
            return Evaluation(figures, lambda folder: None)  # train.loop raises NonFinite for this loss
        predictions[name] = split.predict(slots, outputs)
        if isinstance(split, TextSplit):
            loss = split.loss(predictions[name])
        finite = isinstance(split, AnswerSplit) or split.is_finite(predictions[name])
        losses.append(loss if loss is None or finite else float("nan"))
    figures = {} if None in losses else {"loss": float(np.mean(losses))}

    def save(folder: Path) -> None:
        """Write the answers as SQuAD's scripts read them."""
        for name, split in splits.items():
            if isinstance(split, AnswerSplit):
                squad_metric.save(folder, predictions[name])

    return Evaluation(figures | score_predictions(predictions, splits), save)


def score_predictions(predictions: Mapping[str, Any], splits: Mapping[str, Split]) -> Figures:
    """Return the figures of `score_splits` without the loss, from the predictions by split."""
    scores = {name: split.scores(predictions[name]) for name, split in splits.items()}
    distinct = set().union(*(split.distinct(predictions[name]) for name, split in splits.items()))
    return {
        "score": float(np.mean([scores[name][metric] for name, split in splits.items() for metric in split.deciding])),
        "collapsed": len(distinct) == 1,
        "scores": scores,
    }


def _mean_loss(outputs: Sequence[Outputs]) -> float | None:
    """Return the mean loss over batches, summed over the loss terms; None without losses."""
    if not all(LOSSES in output for output in outputs):
        return None
    loss = 0.0
    for term in outputs[0][LOSSES]:
        total, weight = np.array([output[LOSSES][term] for output in outputs], np.float64).sum(0)
        loss += float(total / weight) if weight else 0.0
    return loss
