"""Dropout with random bits from a counter-based hash."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.random import random_bits


class Dropout(nn.Module):
    """Set elements of x (B, ...) to 0 with probability `rate` in training, and scale the others by 1 / (1 - rate)."""

    rate: float

    def acts(self, train: bool) -> bool:
        """Return whether a call may drop elements: in training, if the rate is above 0."""
        return train and self.rate > 0.0

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        key = self.random_key(train)
        if key is None:
            return x
        keep = random_bits(key, x.shape) >= jnp.uint32(round(self.rate * 2**32))
        return jnp.where(keep, x * (1.0 / (1.0 - self.rate)), jnp.zeros((), x.dtype))

    def random_key(self, train: bool) -> jax.Array | None:
        """Return a new key that decides which elements one application drops, or None if it drops none."""
        return self.make_rng("dropout") if self.acts(train) else None
