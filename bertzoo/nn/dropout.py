"""Dropout with random bits from a counter-based hash."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.random import random_bits


class Dropout(nn.Module):
    """Set elements of x (B, ...) to 0 with probability `rate` in training, and scale the others by 1 / (1 - rate)."""

    rate: float

    def acts(self, train: bool) -> bool:
        """Tell whether a call changes anything."""
        return train and self.rate > 0.0

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        if not self.acts(train):
            return x
        keep = random_bits(self.make_rng("dropout"), x.shape) >= jnp.uint32(round(self.rate * 2**32))
        return jnp.where(keep, x * (1.0 / (1.0 - self.rate)), jnp.zeros((), x.dtype))
