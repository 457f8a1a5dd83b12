"""What a model says of examples, and how well that is."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from bertzoo.objectives.labelled import LabelledObjective
from bertzoo.train.step import HostBatch, put_batch

Numbered = Iterable[tuple[np.ndarray, HostBatch]]  # the indices of a batch's rows, fewer where it is filled up


class Predictor:
    """Logits of examples, in their order, by one compiled program for each length."""

    def __init__(self, objective: LabelledObjective, mesh: jax.sharding.Mesh):
        self._mesh = mesh
        self._logits: Callable[..., jax.Array] = jax.jit(lambda params, batch: objective.logits(params, batch, None))

    def __call__(self, params: Any, batches: Numbered, count: int) -> np.ndarray:
        """(count, C), or (count, L, C) padded with zeros where every token has logits."""
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for indices, batch in batches:
            logits = np.asarray(self._logits(params, put_batch(_inputs(batch), self._mesh)))
            found.append((indices, logits[: len(indices)]))
        longest = tuple(np.max([logits.shape[1:] for _, logits in found], axis=0))
        whole = np.zeros((count, *longest), np.float32)
        for indices, logits in found:
            whole[(indices, *(slice(size) for size in logits.shape[1:-1]))] = logits
        return whole


def _inputs(batch: Mapping[str, np.ndarray]) -> HostBatch:
    return {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}


def majority(predictions: np.ndarray) -> bool:
    """Whether every row got the same class: the model has collapsed."""
    return len(np.unique(predictions)) == 1
