"""What the training step asks of an objective."""

from typing import Any, Protocol

import jax

Params = Any
Batch = dict[str, jax.Array]
Sums = dict[str, jax.Array]
Metrics = dict[str, tuple[jax.Array, jax.Array]]


def apply(model: Any, params: Params, batch: Batch, key: jax.Array | None, *more: Any, **options: Any) -> Any:
    """What a Linen model gives for the ids, segments and mask of a batch; without a key there is no dropout."""
    return model.apply(
        {"params": params},
        batch["input_ids"],
        batch["token_type_ids"],
        batch["attention_mask"],
        *more,
        train=key is not None,
        rngs=None if key is None else {"dropout": key},
        **options,
    )


class Objective(Protocol):
    """The loss is Σ sums[term] / weights[term].

    The weights depend on the batch alone, so that sums add over microbatches and devices.
    """

    def init(self, key: jax.Array) -> Params:
        """Fresh float32 parameters, boxed with their logical axis names."""
        ...

    def weights(self, batch: Batch) -> Sums:
        """The denominator of every loss term."""
        ...

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        """Loss terms summed over the batch, and metrics as (sum, weight); without a key there is no dropout."""
        ...
