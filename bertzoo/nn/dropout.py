"""Dropout from a counter-based hash."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp


def _mix(x: jax.Array) -> jax.Array:
    """A bijection of uint32 that spreads every input bit (C. Wellons' lowbias32, Hash Prospector, 2018)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def random_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """uint32 (B, ...), each a function of the key, its row and its place in the row: sharding changes nothing.

    Threefry costs ten times the operations an element and compiles to a loop; for dropout two rounds of a good hash
    do. Rows are hashed apart because a batch can hold more than 2³² elements.
    """
    first, second = jax.random.key_data(key).astype(jnp.uint32)[:2]
    rows = _mix(_mix(jax.lax.iota(jnp.uint32, shape[0]) ^ first) + second)
    place = jax.lax.broadcasted_iota(jnp.uint32, (shape[0], math.prod(shape[1:])), 1)
    return _mix(_mix(place ^ rows[:, None]) + second).reshape(shape)


class Dropout(nn.Module):
    """(B, ...): each element becomes 0 with probability `rate`, the rest grow by 1 / (1 - rate); only in training."""

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        if not train or self.rate == 0.0:
            return x
        keep = random_bits(self.make_rng("dropout"), x.shape) >= jnp.uint32(round(self.rate * 2**32))
        return jnp.where(keep, x * (1.0 / (1.0 - self.rate)), jnp.zeros((), x.dtype))
