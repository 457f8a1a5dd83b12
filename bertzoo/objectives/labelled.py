"""The fine-tuning loss for a class or number per sequence or token, from labels and optionally a teacher."""

from dataclasses import dataclass
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import optax

from bertzoo.models.tasks import Encoding
from bertzoo.objectives.base import apply_model, init_model
from bertzoo.train.objective import Batch, Metrics, Params, Sums

TERM = "task"  # the name of the one loss term
TEACHER = "teacher"  # in a batch: a teacher's logits for each row


@dataclass(frozen=True)
class LabelledObjective:
    """Cross-entropy of class labels or, if `numbers`, squared error of number labels, for a model with a task head.

    A batch has `label`, (B,) or (B,L), and weights of the same shape: `row_weight` (B,) or `label_weight` (B,L).
    A batch may also have `teacher` (B,C), a teacher's logits for C classes. The target is then
    alpha · label + (1 - alpha) · the teacher's distribution or number (SqueezeBERT, Iandola et al. 2020, §4.2.2).

    reduction: weighted "mean", or "sum" over the batch, as in ELECTRA's code, which clips the gradient of the sum.
    """

    model: Encoding
    numbers: bool = False
    alpha: float = 1.0
    reduction: Literal["mean", "sum"] = "mean"

    def init(self, key: jax.Array) -> Params:
        return init_model(self.model, key)

    def weights(self, batch: Batch) -> Sums:
        return {TERM: jnp.float32(1) if self.reduction == "sum" else jnp.sum(_weights(batch))}

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        logits, labels, weights = self.logits(params, batch, key), batch["label"], _weights(batch)
        if self.numbers:
            losses, metrics = jnp.square(logits[..., 0] - self._number(batch)), {}
        else:
            losses = optax.softmax_cross_entropy(logits, self._distribution(batch, logits.shape[-1]))
            right = jnp.argmax(logits, axis=-1) == labels
            metrics = {f"{TERM}_accuracy": (jnp.sum(right * weights), jnp.sum(weights))}
        total = jnp.sum(losses * weights)
        return {TERM: total}, {f"{TERM}_loss": (total, jnp.sum(weights)), **metrics}

    def logits(self, params: Params, batch: Batch, key: jax.Array | None) -> jax.Array:
        """Return logits in float32 for C classes, (B,C) or (B,L,C); without a key there is no dropout."""
        return cast(jax.Array, apply_model(self.model, params, batch, key, method="logits"))

    def _number(self, batch: Batch) -> jax.Array:
        label = batch["label"].astype(jnp.float32)
        return label if TEACHER not in batch else self._mixed(label, batch[TEACHER][..., 0])

    def _distribution(self, batch: Batch, classes: int) -> jax.Array:
        label = jax.nn.one_hot(batch["label"], classes)
        return label if TEACHER not in batch else self._mixed(label, jax.nn.softmax(batch[TEACHER]))

    def _mixed(self, label: Any, teacher: jax.Array) -> Any:
        return self.alpha * label + (1 - self.alpha) * teacher


def _weights(batch: Batch) -> jax.Array:
    return batch["label_weight"] if "label_weight" in batch else batch["row_weight"]
