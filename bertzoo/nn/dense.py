"""Affine maps: one whose kernel keeps the axes it means (heads apart from head size), and one of two vectors."""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import parameter


class Dense(nn.Module):
    """(..., *I) -> (..., *O) with kernel (*I, *O) and bias (*O); `axes` names every kernel axis, inputs first."""

    features: tuple[int, ...]
    axes: tuple[str, ...]
    kernel_init: Callable
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        contracted = len(self.axes) - len(self.features)
        inputs = x.shape[x.ndim - contracted :]
        kernel = parameter(self, "kernel", self.kernel_init, self.axes, (*inputs, *self.features))
        bias = parameter(self, "bias", nn.initializers.zeros, self.axes[contracted:], self.features)
        # As one matrix product: XLA's CPU backend runs 2-D products faster than general contractions.
        rows = x.shape[: x.ndim - contracted]
        flat = x.astype(self.dtype).reshape(*rows, math.prod(inputs))
        matrix = kernel.astype(self.dtype).reshape(math.prod(inputs), math.prod(self.features))
        return (flat @ matrix).reshape(*rows, *self.features) + bias.astype(self.dtype)


class DensePair(nn.Module):
    """(..., D) and (..., D), whose leading axes broadcast -> (..., O): an affine map of both, one after the other, with
    kernel (2·D, O) and bias (O).

    Either half of the kernel meets its vector alone, so that each of K vectors beside each of L costs K + L products of
    vector and kernel instead of K · L.
    """

    features: int
    axes: tuple[str, str]
    kernel_init: Callable
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        width = x.shape[-1]
        kernel = parameter(self, "kernel", self.kernel_init, self.axes, (2 * width, self.features)).astype(self.dtype)
        bias = parameter(self, "bias", nn.initializers.zeros, self.axes[1:], (self.features,)).astype(self.dtype)
        return x.astype(self.dtype) @ kernel[:width] + y.astype(self.dtype) @ kernel[width:] + bias
