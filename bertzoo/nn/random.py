"""Random numbers from a counter-based hash, and sampling with them.

JAX's Threefry costs ten times the operations per element and compiles to a loop; two rounds of a good hash are enough
for dropout and sampling.
"""

import math

import jax
import jax.numpy as jnp


def mix(x: jax.Array) -> jax.Array:
    """Return one-to-one hashes of uint32 numbers (C. Wellons' lowbias32, Hash Prospector, 2018)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def row_seeds(key: jax.Array, rows: int) -> jax.Array:
    """Return a uint32 seed for each row (B,), from the key and the row's index, independent of sharding."""
    first, second = words_of(key)
    return mix(mix(jax.lax.iota(jnp.uint32, rows) ^ first) + second)


def content_seeds(ids_BL: jax.Array, mask_BL: jax.Array) -> jax.Array:
    """Return a uint32 seed for each row (B,) that depends only on the row's ids where the mask is not 0."""
    place_L = mix(jax.lax.iota(jnp.uint32, ids_BL.shape[1]))
    hashed_BL = mix(ids_BL.astype(jnp.uint32) + place_L)
    return mix(jnp.sum(jnp.where(mask_BL > 0, hashed_BL, 0), axis=1, dtype=jnp.uint32))


def random_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return random uint32 (B, ...) from the key, the row's index and the place in the row, independent of sharding."""
    return _bits(row_seeds(key, shape[0]), words_of(key)[1], shape)


def sample(logits_BPV: jax.Array, seeds_B: jax.Array, entries: int | None = None) -> jax.Array:
    """Draw int32 (B,P) from softmax(logits), as the argmax of logits (B,P,V) + Gumbel noise.

    The noise depends on the row's seed and the position in the row. entries: number of entries of V that may be drawn.
    The entries after them pad V and must have logits too low to be drawn; their number does not affect the draws.
    """
    bits_BPV = _bits(seeds_B, jnp.uint32(0), logits_BPV.shape, entries)
    # -log(-log(u)) with u = 1 - v: the largest noise has u near 1, and floats are finest near v = 0.
    v_BPV = (bits_BPV.astype(jnp.float32) + 0.5) * 2.0**-32
    return jnp.argmax(logits_BPV - jnp.log(-jnp.log1p(-v_BPV)), axis=-1).astype(jnp.int32)


def words_of(key: jax.Array) -> jax.Array:
    """Return the two uint32 words (2,) of a random key."""
    return jax.random.key_data(key).astype(jnp.uint32)[:2]


def _bits(seeds_B: jax.Array, salt: jax.Array, shape: tuple[int, ...], entries: int | None = None) -> jax.Array:
    """Return random uint32 (B, ...): hashes of each row's seed, a salt and the element's position in the row.

    Positions count from 0 in each row, because a batch can hold more than 2³² elements. entries: length of the last
    axis without its padding, which then does not affect the bits of the first `entries` elements.
    """
    place = jax.lax.broadcasted_iota(jnp.uint32, (shape[0], math.prod(shape[1:])), 1)
    if entries is not None and (spare := shape[-1] - entries):
        place -= place // shape[-1] * spare
    return mix(mix(place ^ seeds_B[:, None]) + salt).reshape(shape)
