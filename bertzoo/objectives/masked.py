"""Masked language modelling with next sentence prediction, sentence order prediction or neither."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from bertzoo.heads.base import HeadObjective, apply_model
from bertzoo.models import Compute, Model, Pretraining, PretrainingOutput, pretraining
from bertzoo.train.step import Batch, Metrics, Params, Sums


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Config of masked language modelling, alone or with a task on segment pairs: NSP (BERT §3.1) or SOP (ALBERT §3.1).

    With sentence = "none", the model has no pooler: no gradient would reach it, and weight decay would shrink it away.
    """

    kind: Literal["masked"] = "masked"
    # task of the second segment: none, next sentence (BERT) or sentence order (ALBERT)
    sentence: Literal["none", "nsp", "sop"] = "none"

    def build(self, model: Model, compute: Compute) -> "MaskedObjective":
        module = pretraining(model, compute, sentence=self.sentence != "none")
        return MaskedObjective(module if module.sentence_head is not None else module.clone(pooler=None), self.sentence)


@dataclass(frozen=True)
class MaskedObjective(HeadObjective):
    """Mean cross-entropy over masked positions plus mean cross-entropy over sentence labels (BERT §3.1)."""

    model: Pretraining
    sentence: str

    def weights(self, batch: Batch) -> Sums:
        weights = {"mlm": jnp.sum(batch["masked_weights"])}
        if self.sentence != "none":
            weights[self.sentence] = jnp.sum(batch["row_weight"])
        return weights

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        metrics = self.metrics(self.apply(params, batch, key, masked_only=True), batch)
        return {term: metrics[f"{term}_loss"][0] for term in self.weights(batch)}, metrics

    def metrics(self, output: PretrainingOutput, batch: Batch) -> Metrics:
        """Return losses and accuracies of a model's output for a batch, each as (sum, weight)."""
        metrics = masked_metrics(output.masked_logits, batch, hidden_slots(batch))
        if output.sentence_logits is not None:
            name, labels_B, weights_B = self.sentence, batch["sentence_label"], batch["row_weight"]
            metrics |= _term(name, output.sentence_logits, labels_B, weights_B)[1]
        return metrics

    def masked_logits(self, params: Params, batch: Batch) -> jax.Array:
        """Return logits (B,P,V) for the masked positions, without dropout."""
        return self.apply(params, batch, None, masked_only=True).masked_logits

    def apply(
        self, params: Params, batch: Batch, key: jax.Array | None, masked_only: bool = False
    ) -> PretrainingOutput:
        """Return the model's output for a batch; without a key there is no dropout. masked_only: see `Pretraining`."""
        return apply_model(self.model, params, batch, key, batch["masked_positions"], masked_only=masked_only)


def hidden_slots(batch: Batch) -> jax.Array:
    """Return (B,P): 1 for predicted tokens that the input hides, 0 for those that it shows (BERT §3.1: 10 %)."""
    input_BP = jnp.take_along_axis(batch["input_ids"], batch["masked_positions"], axis=1)
    return (input_BP != batch["masked_ids"]) * batch["masked_weights"]


def masked_metrics(logits_BPV: jax.Array, batch: Batch, hidden_BP: jax.Array) -> Metrics:
    """Return `mlm_loss` and `mlm_accuracy` of all predicted tokens, and `mlm_hidden_loss` of the hidden tokens.

    hidden_BP: the result of `hidden_slots`. The losses are cross-entropies, and all values are (sum, weight). The
    weight of `mlm_hidden_loss` is 0 if no token is hidden.
    """
    losses_BP, metrics = _term("mlm", logits_BPV, batch["masked_ids"], batch["masked_weights"])
    return metrics | {"mlm_hidden_loss": (jnp.sum(losses_BP * hidden_BP), jnp.sum(hidden_BP))}


def _term(name: str, logits: jax.Array, labels: jax.Array, weights: jax.Array) -> tuple[jax.Array, Metrics]:
    losses, total = optax.softmax_cross_entropy_with_integer_labels(logits, labels), jnp.sum(weights)
    right = jnp.argmax(logits, axis=-1) == labels
    return losses, {
        f"{name}_loss": (jnp.sum(losses * weights), total),
        f"{name}_accuracy": (jnp.sum(right * weights), total),
    }
