"""Layers of ModernBERT (Warner et al. 2024): norms first, rotary positions, windows, gates, no biases."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertzoo.nn.attention import SelfAttention, attend, attention_probabilities
from bertzoo.nn.dense import Dense, LayerNorm
from bertzoo.nn.platform import current_platform
from bertzoo.nn.positions import take_tokens
from bertzoo.nn.random import Dropout


class Linear(Dense):
    """A `Dense` without a bias."""

    use_bias = False


class ScaleNorm(LayerNorm):
    """A `LayerNorm` without a bias."""

    use_bias = False


def rotate(x_BLHK: jax.Array, positions_BL: jax.Array, theta: float) -> jax.Array:
    """Rotate the pairs (k, k + K/2) by positions_BL · theta^(-2k/K) (RoFormer, Su et al. 2021, Eq. 34); B may be 1."""
    size = x_BLHK.shape[-1]
    angle_BLK = positions_BL[..., None] * theta ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    cos, sin = jnp.cos(angle_BLK)[:, :, None], jnp.sin(angle_BLK)[:, :, None]
    first, second = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x_BLHK.dtype)


def split_blocks(x: jax.Array, size: int) -> jax.Array:
    """Split the tokens into N blocks of `size` = C tokens, (B,L,...) -> (B,N,C,...); zeros fill the last block."""
    padded = jnp.pad(x, [(0, 0), (0, -x.shape[1] % size), *[(0, 0)] * (x.ndim - 2)])
    return padded.reshape(len(x), -1, size, *x.shape[2:])


def join_neighbours(x: jax.Array) -> jax.Array:
    """Join each block to the blocks on either side, (B,N,C,...) -> (B,N,3C,...), with zeros beyond the ends."""
    padded = jnp.pad(x, [(0, 0), (1, 1), *[(0, 0)] * (x.ndim - 2)])
    return jnp.concatenate([padded[:, :-2], x, padded[:, 2:]], axis=2)


def block_size(reach: int, length: int) -> int | None:
    """Return the size of blocks that see only their neighbours, or None if three are at least as long as a row."""
    return size if 3 * (size := max(reach, 1)) < length else None


def near_in_blocks(reach: int, size: int) -> np.ndarray:
    """Return (C,3C): whether each token of a block is within reach of the tokens of the joined blocks."""
    return np.abs(np.arange(size)[:, None] + size - np.arange(3 * size)) <= reach


def attend_near(
    query_BLHK: jax.Array,
    key_BMHK: jax.Array,
    value_BMHJ: jax.Array,
    mask_BM: jax.Array,
    dropout: Dropout,
    train: bool,
    reach: int,
    positions_BR: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return the results of `attend` for queries that see the keys up to `reach` tokens away; 0 if they see none.

    positions_BR: positions of the queries; by default all, and the first result's memory then grows linearly with them.
    """
    arrays = query_BLHK, key_BMHK, value_BMHJ, mask_BM
    rows, length = mask_BM.shape
    key_positions_1M = jnp.arange(length)[None]
    query_positions_BL = key_positions_1M if positions_BR is None else positions_BR
    near_BLM = jnp.abs(query_positions_BL[:, :, None] - key_positions_1M[:, None, :]) <= reach
    kernel, context_BLHJ = current_platform().attention_kernel, None
    if kernel is not None and positions_BR is None:
        context_BLHJ = kernel(*arrays, dropout, train, reach)
    size = block_size(reach, length)
    if context_BLHJ is None and size is not None and positions_BR is None:
        query, key, value, mask = (split_blocks(array, size) for array in arrays)
        blocks = query, join_neighbours(key), join_neighbours(value), join_neighbours(mask)
        query, key, value, mask = (array.reshape(-1, *array.shape[2:]) for array in blocks)
        near_1CX = jnp.asarray(near_in_blocks(reach, size))[None]
        context_XCHJ, _ = attend(query, key, value, mask, dropout, train, near_1CX)
        context_BLHJ = context_XCHJ.reshape(rows, -1, *context_XCHJ.shape[2:])[:, :length]
    if context_BLHJ is None:
        context_BLHJ, probabilities_BHLM = attend(*arrays, dropout, train, near_BLM)
    else:
        probabilities_BHLM = attention_probabilities(query_BLHK, key_BMHK, mask_BM, near_BLM)
    tokens = jnp.cumsum(jnp.pad(mask_BM, ((0, 0), (reach + 1, reach))), axis=1)
    sees_BL = take_tokens(tokens[:, 2 * reach + 1 :] > tokens[:, :length], positions_BR)
    return jnp.where(sees_BL[..., None, None], context_BLHJ, jnp.zeros((), context_BLHJ.dtype)), probabilities_BHLM


class RotaryAttention(SelfAttention, kw_only=True):
    """Self-attention with rotary positions, whose dropout acts on the output too.

    theta: base of the rotations. reach: tokens on either side that a token sees; None for all (ModernBERT §2.1.2).
    convolution: further heads, as in `MixedAttention`; they read the query before its rotation.
    """

    theta: float
    reach: int | None
    convolution: nn.Module | None = None

    def __call__(
        self,
        x_BLD: jax.Array,
        mask_BL: jax.Array,
        train: bool,
        values_BMI: jax.Array | None = None,
        positions_BR: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        key_positions_1M = jnp.arange(x_BLD.shape[1])[None]
        query_positions_BR = key_positions_1M if positions_BR is None else positions_BR
        query_BLHK = self.query(take_tokens(x_BLD, positions_BR))
        rotated_BLHK = rotate(query_BLHK, query_positions_BR, self.theta)
        key_BMHK = rotate(self.key(x_BLD), key_positions_1M, self.theta)
        value_BMHJ = self.value(x_BLD if values_BMI is None else values_BMI)
        arguments = rotated_BLHK, key_BMHK, value_BMHJ, mask_BL, self.dropout, train
        if self.reach is None or self.reach >= x_BLD.shape[1] - 1:
            context_BLHJ, probabilities_BHLM = attend(*arguments)
        else:
            context_BLHJ, probabilities_BHLM = attend_near(*arguments, self.reach, positions_BR)
        if self.convolution is not None:
            convolved_BLHJ = self.convolution(x_BLD, query_BLHK, mask_BL, positions_BR)
            context_BLHJ = jnp.concatenate([context_BLHJ, convolved_BLHJ], axis=2)
        return self.dropout(self.output(context_BLHJ), train), probabilities_BHLM


class GatedFeedForward(nn.Module):
    """Map (B,L,D) to output(dropout(activation(intermediate(x)) · gate(x))), (B,L,D) (Shazeer 2020, §2)."""

    intermediate: nn.Module
    gate: nn.Module
    output: nn.Module
    activation: Callable[[jax.Array], jax.Array]
    dropout: nn.Module

    def __call__(self, x_BLD: jax.Array, train: bool) -> jax.Array:
        return self.output(self.dropout(self.activation(self.intermediate(x_BLD)) * self.gate(x_BLD), train))


class PreNormLayer(nn.Module):
    """A layer with norms before its sublayers: x (B,L,D), mask (B,L) -> (B,L,D) and the probabilities (B,H,L,L).

    x = x + attention(attention_norm(x)); x = x + feed_forward(feed_forward_norm(x)); then `output_norm`, which the last
    layer has. With `bottleneck`, (B,L,D) -> (B,L,I), the two sums b are I wide: x = x + output(b), from b =
    bottleneck(x).
    """

    attention_norm: nn.Module | None
    attention: nn.Module
    feed_forward_norm: nn.Module
    feed_forward: nn.Module
    output_norm: nn.Module | None
    bottleneck: nn.Module | None = None
    output: nn.Module | None = None

    def __call__(
        self, x_BLD: jax.Array, mask_BL: jax.Array, train: bool, positions_BR: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        b_BLI = x_BLD if self.bottleneck is None else self.bottleneck(x_BLD)
        normed_BLI = b_BLI if self.attention_norm is None else self.attention_norm(b_BLI)
        attended_BLI, probabilities_BHLM = self.attention(normed_BLI, mask_BL, train, positions_BR=positions_BR)
        b_BLI = take_tokens(b_BLI, positions_BR) + attended_BLI
        b_BLI = b_BLI + self.feed_forward(self.feed_forward_norm(b_BLI), train)
        x_BLD = b_BLI if self.output is None else take_tokens(x_BLD, positions_BR) + self.output(b_BLI)
        return x_BLD if self.output_norm is None else self.output_norm(x_BLD), probabilities_BHLM
