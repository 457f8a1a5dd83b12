"""Dropout."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class Dropout(nn.Module):
    """Sets each element to zero with probability `rate` and scales the rest by 1 / (1 - rate); the identity when not training."""

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        if not train or self.rate == 0.0:
            return x
        keep = jax.random.bernoulli(self.make_rng("dropout"), 1.0 - self.rate, x.shape)
        return jnp.where(keep, x / (1.0 - self.rate), jnp.zeros((), x.dtype))
