"""Replaced token detection (ELECTRA, Clark et al. 2020, https://arxiv.org/abs/2003.10555)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import optax

from bertzoo.core.config import check_range
from bertzoo.heads.base import HeadObjective, apply_model
from bertzoo.models import Compute, Model, ReplacedDetection, replaced_detection
from bertzoo.nn import content_seeds, row_seeds, sample
from bertzoo.objectives.masked import hidden_slots, masked_metrics
from bertzoo.train.step import Batch, Metrics, Params, Sums


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """Config of replaced token detection (§2): a generator fills masked positions, the model finds replaced tokens."""

    sentence: ClassVar[Literal["none"]] = "none"  # the second segment has no task

    kind: Literal["replaced"] = "replaced"
    generator_width: float = 0.25  # generator's width as a share of the model's hidden_size
    weight: float = 50.0  # weight of the discriminator's loss (the paper's λ); the generator's is 1
    temperature: float = 1.0  # temperature of the softmax that replacements are drawn from

    def __post_init__(self):
        check_range(self, "weight", "temperature", above=0, advice="Use a positive number.")
        check_range(self, "generator_width", above=0, most=10, advice="Use 1 or less, as ELECTRA does.")

    def build(self, model: Model, compute: Compute) -> "ReplacedObjective":
        return ReplacedObjective(
            replaced_detection(model, compute, self.generator_width), self.weight, self.temperature
        )


@dataclass(frozen=True)
class ReplacedObjective(HeadObjective):
    """The generator's mean cross-entropy over masked tokens + `weight` · the discriminator's binary cross-entropy (§2).

    The discriminator's loss is a mean over all tokens, including [CLS] and [SEP], and sends no gradient through the
    generator's samples. A token that the generator fills in correctly counts as original.
    """

    model: ReplacedDetection
    weight: float
    temperature: float

    def weights(self, batch: Batch) -> Sums:
        return {"mlm": jnp.sum(batch["masked_weights"]), "rtd": jnp.sum(_token_weights(batch))}

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        generator_key, sample_key, discriminator_key = (None,) * 3 if key is None else jax.random.split(key, 3)
        masked_BPV = self.masked_logits(params, batch, generator_key)
        batch = corrupt(batch, self.draw(masked_BPV, batch, sample_key))
        logits_BL = self.replaced_logits(params, batch, discriminator_key)
        return self.loss(batch, masked_BPV, logits_BL)

    def masked_logits(self, params: Params, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """Return the generator's logits (B,P,V) for the masked positions; without a key there is no dropout."""
        return self._apply("generate", params, batch, key, batch["masked_positions"], masked_only=True)

    def draw(self, masked_BPV: jax.Array, batch: Batch, key: jax.Array | None) -> jax.Array:
        """Draw ids (B,P) from the generator's distributions; no gradient flows back.

        Without a key, the draw depends only on the row's own tokens, so a held-out row is corrupted alike in every
        batch. As in training, the ids are samples and not the likeliest tokens.
        """
        if key is None:
            seeds_B = content_seeds(batch["input_ids"], batch["attention_mask"])
        else:
            seeds_B = row_seeds(key, len(batch["input_ids"]))
        return sample(jax.lax.stop_gradient(masked_BPV) / self.temperature, seeds_B)

    def replaced_logits(self, params: Params, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """Return the discriminator's logits (B,L) for a batch from `corrupt`; above 0 means replaced."""
        return self._apply("discriminate", params, batch, key)

    def loss(self, batch: Batch, masked_BPV: jax.Array, logits_BL: jax.Array) -> tuple[Sums, Metrics]:
        """Return loss terms and metrics of a batch from `corrupt`, given the logits of generator and discriminator."""
        replaced_BL, token_BL = batch["replaced"], _token_weights(batch)
        tokens = jnp.sum(token_BL)
        rtd = jnp.sum(optax.sigmoid_binary_cross_entropy(logits_BL, replaced_BL) * token_BL)
        predicted_BL = logits_BL > 0
        hits = jnp.sum(predicted_BL * replaced_BL * token_BL)
        metrics = masked_metrics(masked_BPV, batch, batch["hidden"]) | {
            "rtd_loss": (rtd, tokens),
            "rtd_accuracy": (jnp.sum((predicted_BL == replaced_BL) * token_BL), tokens),
            "rtd_precision": (hits, jnp.sum(predicted_BL * token_BL)),
            "rtd_recall": (hits, jnp.sum(replaced_BL * token_BL)),
            "rtd_auc": pairs_in_order(logits_BL, replaced_BL, token_BL),
        }
        return {"mlm": metrics["mlm_loss"][0], "rtd": self.weight * rtd}, metrics

    def _apply(
        self, method: str, params: Params, batch: Batch, key: jax.Array | None, *more: Any, **options: Any
    ) -> Any:
        logits, _ = apply_model(self.model, params, batch, key, *more, method=method, **options)
        return logits


def corrupt(batch: Batch, drawn_BP: jax.Array) -> Batch:
    """Return the batch with the drawn ids at its masked positions.

    The result also has `replaced` (B,L) float32, 1 where the id differs from the original. `hidden` (B,P) float32 is 1
    for masked tokens that the generator did not see. Positions whose `masked_weights` are 0 change nothing; a row's
    other `masked_positions` must be distinct.
    """
    length = batch["input_ids"].shape[1]
    positions_BP = jnp.where(batch["masked_weights"] > 0, batch["masked_positions"], length)
    new_BP = (drawn_BP != batch["masked_ids"]).astype(jnp.float32)

    @jax.vmap
    def put(row_L: jax.Array, positions_P: jax.Array, values_P: jax.Array) -> jax.Array:
        return row_L.at[positions_P].set(values_P, mode="drop")

    ids_BL = put(batch["input_ids"], positions_BP, drawn_BP)
    replaced_BL = put(jnp.zeros(ids_BL.shape), positions_BP, new_BP)
    return {**batch, "input_ids": ids_BL, "replaced": replaced_BL, "hidden": hidden_slots(batch)}


def pairs_in_order(scores_BL: jax.Array, labels_BL: jax.Array, weights_BL: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Count the pairs of a positive and a negative token in the same row; return (ordered pairs, all pairs).

    A pair is ordered if the positive token scores higher; equal scores count half. Both counts can be summed over
    batches. Their quotient is the area under the ROC curve within rows.
    """
    pairs_BLL = (labels_BL * weights_BL)[:, :, None] * ((1 - labels_BL) * weights_BL)[:, None, :]
    difference_BLL = scores_BL[:, :, None] - scores_BL[:, None, :]
    return jnp.sum(pairs_BLL * (0.5 * jnp.sign(difference_BLL) + 0.5)), jnp.sum(pairs_BLL)


def _token_weights(batch: Batch) -> jax.Array:
    """Return (B,L): 1 for every real token of a real row, 0 for padding."""
    return batch["attention_mask"] * batch["row_weight"][:, None]
