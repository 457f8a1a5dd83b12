"""Layers of ModernBERT (Warner et al. 2024): norms first, rotary positions, windows, gates, no biases."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.attention import SelfAttention, attend
from bertzoo.nn.dense import Dense
from bertzoo.nn.norm import LayerNorm
from bertzoo.nn.positions import take_tokens


class Linear(Dense):
    """A `Dense` without a bias."""

    use_bias = False


class ScaleNorm(LayerNorm):
    """A `LayerNorm` without a bias."""

    use_bias = False


def rotate(x_BLHK: jax.Array, places_BL: jax.Array, theta: float) -> jax.Array:
    """Rotate the pairs (k, k + K/2) of each head by place · theta^(-2k/K) (RoFormer, Su et al. 2021, Eq. 34).

    places_BL: the tokens' positions in their rows; B may be 1.
    """
    size = x_BLHK.shape[-1]
    angle_BLK = places_BL[..., None] * theta ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    cos, sin = jnp.cos(angle_BLK)[:, :, None], jnp.sin(angle_BLK)[:, :, None]
    first, second = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x_BLHK.dtype)


class RotaryAttention(SelfAttention):
    """Self-attention with rotary positions, whose dropout acts on the output too.

    theta: base of the rotations. reach: tokens on either side that a token sees; None for all (ModernBERT §2.1.2).
    """

    theta: float
    reach: int | None

    def __call__(
        self,
        x_BLD: jax.Array,
        mask_BL: jax.Array,
        train: bool,
        values_BMI: jax.Array | None = None,
        positions_BR: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        places_1M = jnp.arange(x_BLD.shape[1])[None]
        read_BR = places_1M if positions_BR is None else positions_BR
        query_BLHK = rotate(self.query(take_tokens(x_BLD, positions_BR)), read_BR, self.theta)
        key_BMHK = rotate(self.key(x_BLD), places_1M, self.theta)
        value_BMHJ = self.value(x_BLD if values_BMI is None else values_BMI)
        near_BLM = None
        if self.reach is not None and self.reach < x_BLD.shape[1] - 1:
            near_BLM = jnp.abs(read_BR[:, :, None] - places_1M[:, None, :]) <= self.reach
        context_BLHJ, seen_BHLM = attend(query_BLHK, key_BMHK, value_BMHJ, mask_BL, self.dropout, train, near_BLM)
        return self.dropout(self.output(context_BLHJ), train), seen_BHLM


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
    layer has. With `positions_BR`, only the R tokens at these positions are computed, as in `Layer`.
    """

    attention_norm: nn.Module | None
    attention: nn.Module
    feed_forward_norm: nn.Module
    feed_forward: nn.Module
    output_norm: nn.Module | None

    def __call__(
        self, x_BLD: jax.Array, mask_BL: jax.Array, train: bool, positions_BR: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        normed_BLD = x_BLD if self.attention_norm is None else self.attention_norm(x_BLD)
        attended_BLD, seen_BHLM = self.attention(normed_BLD, mask_BL, train, positions_BR=positions_BR)
        x_BLD = take_tokens(x_BLD, positions_BR) + attended_BLD
        x_BLD = x_BLD + self.feed_forward(self.feed_forward_norm(x_BLD), train)
        return x_BLD if self.output_norm is None else self.output_norm(x_BLD), seen_BHLM
