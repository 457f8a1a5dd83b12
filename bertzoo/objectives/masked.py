"""Masked language modelling with next sentence prediction, sentence order prediction or neither."""

from dataclasses import dataclass
from typing import Literal, cast

import jax
import jax.numpy as jnp
import optax

from bertzoo.models import Compute, Model, Pretraining, PretrainingOutput, pretraining
from bertzoo.objectives.base import Batch, Metrics, Params, Sums


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Masked language model, and what the second segment is for: nothing, NSP (BERT §3.1) or SOP (ALBERT §3.1)."""

    kind: Literal["masked"] = "masked"
    sentence: Literal["none", "nsp", "sop"] = "none"

    def build(self, model: Model, compute: Compute) -> "MaskedObjective":
        return MaskedObjective(pretraining(model, compute, sentence=self.sentence != "none"), self.sentence)


@dataclass(frozen=True)
class MaskedObjective:
    """Mean cross-entropy over masked slots plus mean cross-entropy over sentence labels (BERT §3.1)."""

    model: Pretraining
    sentence: str

    def init(self, key: jax.Array) -> Params:
        ids = jnp.zeros((1, 8), jnp.int32)
        return self.model.init(key, ids, ids, ids + 1, ids[:, :1])["params"]

    def weights(self, batch: Batch) -> Sums:
        weights = {"mlm": jnp.sum(batch["masked_weights"])}
        if self.sentence != "none":
            weights[self.sentence] = jnp.sum(batch["row_weight"])
        return weights

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        output = self._apply(params, batch, key)
        terms = {"mlm": (output.masked_logits, batch["masked_ids"], batch["masked_weights"])}
        if output.sentence_logits is not None:
            terms[self.sentence] = (output.sentence_logits, batch["sentence_label"], batch["row_weight"])
        sums, metrics = {}, {}
        for name, (logits, labels, weight) in terms.items():
            total = jnp.sum(weight)
            sums[name] = jnp.sum(optax.softmax_cross_entropy_with_integer_labels(logits, labels) * weight)
            metrics[f"{name}_loss"] = sums[name], total
            metrics[f"{name}_accuracy"] = jnp.sum((jnp.argmax(logits, axis=-1) == labels) * weight), total
        return sums, metrics

    def masked_logits(self, params: Params, batch: Batch) -> jax.Array:
        """(B,P,V): what the model puts into the masked positions; no dropout."""
        return self._apply(params, batch, None).masked_logits

    def _apply(self, params: Params, batch: Batch, key: jax.Array | None) -> PretrainingOutput:
        applied = self.model.apply(
            {"params": params},
            batch["input_ids"],
            batch["token_type_ids"],
            batch["attention_mask"],
            batch["masked_positions"],
            train=key is not None,
            rngs=None if key is None else {"dropout": key},
        )
        return cast(PretrainingOutput, applied)
