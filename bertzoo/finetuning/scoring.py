"""Score a model on encoded examples: in training, of a saved model, and of an exported file."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as change
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertzoo.runs.runner import Outputs, Runner
from bertzoo.tasks.rows import Rows, Slot
from bertzoo.train.step import Batch

LOSSES = "losses"  # in a runner's outputs: {loss term: (sum of losses, sum of weights)} of a batch with labels
SplitOutputs = Mapping[str, tuple[Sequence[Slot], Sequence[Outputs]]]
Figures = dict[str, Any]  # loss, score, collapsed, and scores: {split: {metric: points}}
# Metrics of a model, a function that writes its predictions into a folder, and its slots and outputs by split.
Evaluation = tuple[Figures, Callable[[Path], object], SplitOutputs]


@dataclass(frozen=True, kw_only=True)
class Split(ABC):
    """Encoded examples of a split, with a score of the model's outputs for them.

    skipped: number of examples without a row, which count nowhere, by reason. finite_only: whether `predict` raises
    UserError for outputs that are not finite.
    """

    examples: Sequence[Any]
    rows: Rows
    skipped: Mapping[str, int] = field(default_factory=dict)
    finite_only: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """Number of examples that count."""
        return len(self.examples) - sum(self.skipped.values())

    @property
    def summary(self) -> str:
        """The number of examples, and of those that are cut."""
        cut = int(self.rows.cut.sum())
        return f"{self.size:,} examples" + (f", {cut:,} of them cut to {self.rows.max_length} tokens" if cut else "")

    @property
    @abstractmethod
    def deciding(self) -> tuple[str, ...]:
        """Names of the metrics whose mean is the score."""

    @property
    def digest(self) -> str:
        """SHA-256 of the examples as the model reads them, in hexadecimal."""
        return self.rows.digest

    def plan(self, batch_size: int, lengths: Sequence[int], seed: int | None = None, epoch: int = 0) -> list[Slot]:
        return self.rows.plan(batch_size, lengths, seed, epoch)

    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]:
        """Return the arrays of a planned batch, by name."""
        return self.rows.batch(slot, batch_size)

    @abstractmethod
    def predict(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> Any:
        """Return predictions in the order of the examples."""

    def is_finite(self, predictions: Any) -> bool:
        return True

    @abstractmethod
    def scores(self, predictions: Any) -> dict[str, float]:
        """Return metrics by name, in points; 0 if predictions are not finite."""

    @abstractmethod
    def distinct(self, predictions: Any) -> set[Any]:
        """Return the distinct predictions, which show a collapse if there is only one."""

    def loss(self, predictions: Any, mean: float | None) -> float | None:
        """Return the loss. mean: that of the batches, or None if the runner computes none."""
        return mean if mean is None or self.is_finite(predictions) else float("nan")

    def save(self, folder: Path, predictions: Any) -> None:
        """Write the predictions into `folder`, if they have a file format."""
        return


@functools.lru_cache(maxsize=16)  # each of a run's seeds would trace the model again, for seconds
def outputs_and_losses(objective: Any) -> Callable[[Any, Batch], Outputs]:
    """Return a function (params, batch) -> outputs of a model, and its LOSSES if the batch has labels."""
    mean = change(objective, reduction="mean")

    def function(params: Any, batch: Batch) -> Outputs:
        outputs = mean.predict(params, batch)
        if {name.rpartition("/")[2] for name in batch}.isdisjoint(("label", "start")):
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

    If the loss of a split that is `finite_only` is not finite, there are no scores.
    """
    predictions, losses, computed = dict[str, Any](), [], {}
    for name, split in splits.items():
        slots, outputs = computed[name] = runner.run_all(split)
        loss = None
        if all(LOSSES in output for output in outputs):
            loss = 0.0
            for term in outputs[0][LOSSES]:
                total, weight = np.array([output[LOSSES][term] for output in outputs], np.float64).sum(0)
                loss += float(total / weight) if weight else 0.0
        if split.finite_only and loss is not None and not np.isfinite(loss):
            figures = {"loss": loss, "score": 0.0, "collapsed": False, "scores": {name: {}}}
            return figures, lambda folder: None, {}  # train.loop raises NonFinite for this loss
        predictions[name] = split.predict(slots, outputs)
        losses.append(split.loss(predictions[name], loss))
    figures = {} if None in losses else {"loss": float(np.mean(losses))}

    def save(folder: Path) -> None:
        for name, split in splits.items():
            split.save(folder, predictions[name])

    return figures | score_predictions(predictions, splits), save, computed


def score_predictions(predictions: Mapping[str, Any], splits: Mapping[str, Split]) -> Figures:
    """Return the figures of `score_splits` without the loss, from the predictions by split."""
    scores = {name: split.scores(predictions[name]) for name, split in splits.items()}
    distinct = set().union(*(split.distinct(predictions[name]) for name, split in splits.items()))
    return {
        "score": float(np.mean([scores[name][metric] for name, split in splits.items() for metric in split.deciding])),
        "collapsed": len(distinct) == 1,
        "scores": scores,
    }
