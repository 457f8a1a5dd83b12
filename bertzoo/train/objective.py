"""The interface of a loss that the training step minimises."""

from typing import Any, Protocol

import jax

Params = Any
Batch = dict[str, jax.Array]
Sums = dict[str, jax.Array]
Metrics = dict[str, tuple[jax.Array, jax.Array]]


class Objective(Protocol):
    """A loss: Σ sums[term] / weights[term] over the loss terms.

    The weights depend on the batch alone, so sums add up over microbatches and devices. Splitting a batch is therefore
    exact, except for random draws (dropout, replaced tokens), which depend on the microbatch.
    """

    def init(self, key: jax.Array) -> Params:
        """Return fresh float32 parameters, boxed with their logical axis names."""
        ...

    def weights(self, batch: Batch) -> Sums:
        """Return the denominator of every loss term for a batch."""
        ...

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        """Return the numerator of every loss term, summed over the batch, and metrics as (sum, weight).

        key: random key for dropout and for replacing tokens. If None, there is no dropout, and the tokens that replace
        others in a row depend on the row alone.
        """
        ...
