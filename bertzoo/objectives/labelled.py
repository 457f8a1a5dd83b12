"""The fine-tuning loss of classes (per row or token) or numbers, from labels and optionally a teacher's logits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import jax
import jax.numpy as jnp
import optax

from bertzoo.models.tasks import Encoding, Problem
from bertzoo.objectives.base import apply_model, init_model
from bertzoo.train.objective import Batch, Metrics, Params, Sums

TERM = "task"  # the name of the one loss term
TEACHER = "teacher"  # in a batch: a teacher's logits for each row


@dataclass(frozen=True)
class LabelledObjective:
    """The loss of a model with a task head: cross-entropy of classes or, for a regression, the squared error.

    A batch has `label`, (B,) or (B,L), and weights of the same shape: `row_weight` (B,) or `label_weight` (B,L).
    With problem = "multi_label_classification", `label` is (B,C), 1 or 0 for each of C labels. A row's loss is then the
    mean of C sigmoid cross-entropies, as in transformers.
    A batch may also have `teacher` (B,C), a teacher's logits for C classes. The target is then
    alpha · label + (1 - alpha) · the teacher's probabilities or number (SqueezeBERT, Iandola et al. 2020, §4.2.2).

    reduction: weighted "mean", or "sum" over the batch, as in ELECTRA's code, which clips the gradient of the sum.
    """

    model: Encoding
    problem: Problem = "single_label_classification"
    alpha: float = 1.0
    reduction: Literal["mean", "sum"] = "mean"

    def init(self, key: jax.Array) -> Params:
        return init_model(self.model, key)

    def weights(self, batch: Batch) -> Sums:
        return {TERM: jnp.float32(1) if self.reduction == "sum" else jnp.sum(_weights(batch))}

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        logits, labels, weights = self.logits(params, batch, key), batch["label"], _weights(batch)
        right = None
        match self.problem:
            case "regression":
                target = self._target(labels.astype(jnp.float32), batch, lambda output: output[..., 0])
                losses = jnp.square(logits[..., 0] - target)
            case "multi_label_classification":
                target = self._target(labels.astype(jnp.float32), batch, jax.nn.sigmoid)
                losses = jnp.mean(optax.sigmoid_binary_cross_entropy(logits, target), axis=-1)
                right = jnp.all((logits > 0) == (labels > 0), axis=-1)
            case _:
                target = self._target(jax.nn.one_hot(labels, logits.shape[-1]), batch, jax.nn.softmax)
                losses = optax.softmax_cross_entropy(logits, target)
                right = jnp.argmax(logits, axis=-1) == labels
        metrics = {} if right is None else {f"{TERM}_accuracy": (jnp.sum(right * weights), jnp.sum(weights))}
        total = jnp.sum(losses * weights)
        return {TERM: total}, {f"{TERM}_loss": (total, jnp.sum(weights)), **metrics}

    def logits(self, params: Params, batch: Batch, key: jax.Array | None) -> jax.Array:
        """Return logits in float32 for C classes, (B,C) or (B,L,C); without a key there is no dropout."""
        return cast(jax.Array, apply_model(self.model, params, batch, key, method="logits"))

    def predict(self, params: Params, batch: Batch) -> dict[str, jax.Array]:
        """Return `logits` as the method `logits` does, without dropout."""
        return {"logits": self.logits(params, batch, None)}

    def _target(self, label: jax.Array, batch: Batch, predict: Callable[[jax.Array], jax.Array]) -> jax.Array:
        """Return alpha · label + (1 - alpha) · predict(teacher's logits); without a teacher, return the label."""
        if TEACHER not in batch:
            return label
        return self.alpha * label + (1 - self.alpha) * predict(batch[TEACHER])


def _weights(batch: Batch) -> jax.Array:
    return batch["label_weight"] if "label_weight" in batch else batch["row_weight"]
