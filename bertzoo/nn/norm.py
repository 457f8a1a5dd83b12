"""Normalisation over the last axis."""

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import parameter


class LayerNorm(nn.Module):
    """Layer normalisation (..., D): (x - mean) / √(variance + epsilon) · scale + bias, in float32 (Ba et al. 2016)."""

    epsilon: float
    axis: str
    dtype: jnp.dtype

    use_bias: ClassVar[bool] = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = parameter(self, "scale", nn.initializers.ones, (self.axis,), x.shape[-1:])
        bias: Any = 0.0
        if self.use_bias:
            bias = parameter(self, "bias", nn.initializers.zeros, (self.axis,), x.shape[-1:])
        x = x.astype(jnp.float32)
        # Not E[x²]-mean², which can round to a negative number that an epsilon of 1e-12 does not make positive.
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return (centred * jax.lax.rsqrt(variance + self.epsilon) * scale + bias).astype(self.dtype)


class NoNorm(nn.Module):
    """MobileBERT's replacement of layer normalisation (..., D): x · scale + bias, without mean and variance (§3.3)."""

    axis: str
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = parameter(self, "scale", nn.initializers.ones, (self.axis,), x.shape[-1:])
        bias = parameter(self, "bias", nn.initializers.zeros, (self.axis,), x.shape[-1:])
        return (x.astype(jnp.float32) * scale + bias).astype(self.dtype)
