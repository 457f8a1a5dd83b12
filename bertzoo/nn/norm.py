"""Normalisation over the last axis."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class LayerNorm(nn.Module):
    """(..., D) -> (..., D): (x - mean) / √(variance + epsilon) · scale + bias, in float32 (Ba et al. 2016)."""

    epsilon: float
    axis: str
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param(
            "scale", nn.with_logical_partitioning(nn.initializers.ones, (self.axis,)), x.shape[-1:], jnp.float32
        )
        bias = self.param(
            "bias", nn.with_logical_partitioning(nn.initializers.zeros, (self.axis,)), x.shape[-1:], jnp.float32
        )
        x = x.astype(jnp.float32)
        # The variance as E[(x-mean)²]: E[x²]-mean² cancels to a negative number, and epsilon 1e-12 would not save it.
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return (centred * jax.lax.rsqrt(variance + self.epsilon) * scale + bias).astype(self.dtype)
