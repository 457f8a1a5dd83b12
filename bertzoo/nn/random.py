"""Random numbers from a counter-based hash, sampling with them, and dropout.

JAX's Threefry costs ten times the operations per element and compiles to a loop; two rounds of a good hash are enough
for dropout and sampling.
"""

import math

import flax.linen as nn
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
    position_L = mix(jax.lax.iota(jnp.uint32, ids_BL.shape[1]))
    hashed_BL = mix(ids_BL.astype(jnp.uint32) + position_L)
    return mix(jnp.sum(jnp.where(mask_BL > 0, hashed_BL, 0), axis=1, dtype=jnp.uint32))


def random_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return random uint32 (B, ...) from the key, the row's index and the position in it, whatever the sharding."""
    return _bits(row_seeds(key, shape[0]), words_of(key)[1], shape)


def sample(logits_BPV: jax.Array, seeds_B: jax.Array) -> jax.Array:
    """Draw int32 (B,P) from softmax(logits) of logits (B,P,V): first a block of tokens, then a token of the block.

    Both draws invert a running sum of weights, so a position takes two random numbers, where Gumbel noise would take V.
    They depend on the row's seed and the position in the row. On a mesh that splits V, every device gathers the logits.
    """
    positions, width = logits_BPV.shape[1:]
    block = min(128, width)
    peak_BP1 = jnp.max(logits_BPV, axis=-1, keepdims=True)
    sums_BPN = _block_sums(jnp.exp(logits_BPV - peak_BP1), block)
    first_BP = block * _invert(sums_BPN, _uniform(seeds_B, jnp.uint32(0), positions))
    start_BP = jnp.minimum(first_BP, width - block)  # the last block may begin inside the one before it
    cut = jax.vmap(jax.vmap(lambda logits_V, start: jax.lax.dynamic_slice(logits_V, (start,), (block,))))
    weights_BPK = jnp.exp(cut(logits_BPV, start_BP) - peak_BP1)
    weights_BPK = jnp.where(start_BP[..., None] + jnp.arange(block) < first_BP[..., None], 0, weights_BPK)
    drawn_BP = start_BP + _invert(weights_BPK, _uniform(seeds_B, jnp.uint32(1), positions))
    return jnp.minimum(drawn_BP, width - 1)  # rounding may draw an empty block, which would pass the end


def _block_sums(weights_BPV: jax.Array, block: int) -> jax.Array:
    """Return the sums (B,P,N) of blocks of weights; the last block may be smaller."""
    rows, positions, width = weights_BPV.shape
    blocks = -(-width // block)

    def product(weights_BPV: jax.Array) -> jax.Array:
        member_VN = jnp.arange(width)[:, None] // block == jnp.arange(blocks)
        return jnp.dot(weights_BPV, member_VN.astype(weights_BPV.dtype), precision=jax.lax.Precision.HIGHEST)

    def reshape(weights_BPV: jax.Array) -> jax.Array:
        padded_BPV = jnp.pad(weights_BPV, ((0, 0), (0, 0), (0, blocks * block - width)))
        return jnp.sum(padded_BPV.reshape(rows, positions, blocks, block), axis=-1)

    # A TPU would copy the weights to another layout for the reshape. On a CPU the product is slower.
    return jax.lax.platform_dependent(weights_BPV, tpu=product, default=reshape)


def _invert(weights_BPN: jax.Array, uniform_BP: jax.Array) -> jax.Array:
    """Return the index (B,P) at which the running share of the weights first exceeds `uniform_BP`."""
    sums_BPN = jnp.cumsum(weights_BPN, axis=-1)
    return jnp.sum(sums_BPN <= uniform_BP[..., None] * sums_BPN[..., -1:], axis=-1, dtype=jnp.int32)


def _uniform(seeds_B: jax.Array, salt: jax.Array, positions: int) -> jax.Array:
    """Return random float32 (B,P) inside (0, 1), in steps of 2⁻²³."""
    bits_BP = _bits(seeds_B, salt, (len(seeds_B), positions))
    return ((bits_BP >> 9).astype(jnp.float32) + 0.5) * 2.0**-23


def words_of(key: jax.Array) -> jax.Array:
    """Return the two uint32 words (2,) of a random key."""
    return jax.random.key_data(key).astype(jnp.uint32)[:2]


def _bits(seeds_B: jax.Array, salt: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return random uint32 (B, ...): hashes of each row's seed, a salt and the element's position in the row."""
    # Not the position in the batch, which can hold more than 2³² elements.
    position = jax.lax.broadcasted_iota(jnp.uint32, (shape[0], math.prod(shape[1:])), 1)
    return mix(mix(position ^ seeds_B[:, None]) + salt).reshape(shape)


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
