"""Losses for the start and the end of an answer (BERT §4.2, §4.3), predicted independently or jointly (ELECTRA)."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from bertzoo.models.tasks import JointSpanFinder, SpanFinder
from bertzoo.nn import span_candidates
from bertzoo.objectives.base import apply_model, init_model
from bertzoo.train.objective import Batch, Metrics, Params, Sums

Reduction = Literal["mean", "sum"]


@dataclass(frozen=True)
class SpanObjective:
    """Average of the cross-entropies of an answer's start and end, reduced over rows (as in BERT's run_squad.py).

    The softmax covers every position, including question and padding, as in run_squad.py. In a row without the answer,
    both labels are 0, the position of [CLS]. reduction: "mean" over rows, or "sum", as in ELECTRA's code, which clips
    the sum's gradient.
    """

    model: SpanFinder
    reduction: Reduction = "mean"

    def init(self, key: jax.Array) -> Params:
        return init_model(self.model, key)

    def weights(self, batch: Batch) -> Sums:
        return {"span": _rows(batch, self.reduction)}

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        start_BL, end_BL = jnp.moveaxis(apply_model(self.model, params, batch, key).logits, -1, 0)
        metrics = span_metrics(start_BL, end_BL, batch)
        return {"span": metrics["span_loss"][0]}, metrics

    def predict(self, params: Params, batch: Batch) -> dict[str, jax.Array]:
        """Return `start_logits` and `end_logits` (B,L) for decoding."""
        start_BL, end_BL = jnp.moveaxis(apply_model(self.model, params, batch, None).logits, -1, 0)
        return {"start_logits": start_BL, "end_logits": end_BL}


@dataclass(frozen=True)
class JointSpanObjective:
    """The loss of SpanObjective, with the end conditioned on the true start, plus a loss on whether there is an answer.

    The added loss is `null_weight` times a binary cross-entropy, also reduced by `reduction`. ELECTRA's qa_tasks.py
    adds it for SQuAD 1.1 too.
    """

    model: JointSpanFinder
    null_weight: float = 0.5
    reduction: Reduction = "mean"

    def init(self, key: jax.Array) -> Params:
        return init_model(self.model, key)

    def weights(self, batch: Batch) -> Sums:
        return dict.fromkeys(("span", "null"), _rows(batch, self.reduction))

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        output = apply_model(self.model, params, batch, key, starts_BK=batch["start"][:, None])
        metrics = span_metrics(output.start_logits, output.end_logits[:, 0], batch)
        weight_B, null_B = batch["row_weight"], 1.0 - batch["answerable"]
        losses_B = optax.sigmoid_binary_cross_entropy(output.null_logits, null_B)
        right_B = (output.null_logits > 0) == (null_B > 0)
        metrics |= {
            "null_loss": (jnp.sum(losses_B * weight_B), jnp.sum(weight_B)),
            "null_accuracy": (jnp.sum(right_B * weight_B), jnp.sum(weight_B)),
        }
        return {"span": metrics["span_loss"][0], "null": self.null_weight * metrics["null_loss"][0]}, metrics

    def predict(self, params: Params, batch: Batch) -> dict[str, jax.Array]:
        """Return the candidate spans for decoding (`nn.span_candidates`)."""
        output = apply_model(self.model, params, batch, None)
        return span_candidates(output.start_logits, output.starts, output.end_logits, output.null_logits)


def _rows(batch: Batch, reduction: Reduction) -> jax.Array:
    return jnp.float32(1) if reduction == "sum" else jnp.sum(batch["row_weight"])


def span_metrics(start_BL: jax.Array, end_BL: jax.Array, batch: Batch) -> Metrics:
    """Return the metrics `span_loss`, `start_accuracy` and `end_accuracy`, each as (sum, weight).

    The loss is the average of the start's and the end's cross-entropy.
    """
    weight_B = batch["row_weight"]
    total = jnp.sum(weight_B)
    metrics, losses_B = {}, jnp.zeros_like(weight_B)
    for name, logits_BL in (("start", start_BL), ("end", end_BL)):
        losses_B += 0.5 * optax.softmax_cross_entropy_with_integer_labels(logits_BL, batch[name])
        right_B = jnp.argmax(logits_BL, axis=-1) == batch[name]
        metrics[f"{name}_accuracy"] = jnp.sum(right_B * weight_B), total
    return {"span_loss": (jnp.sum(losses_B * weight_B), total), **metrics}
