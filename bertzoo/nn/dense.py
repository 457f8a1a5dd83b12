"""Affine maps: Dense, whose kernel has named axes such as heads and head size, and DensePair for two inputs."""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import Matrix, parameter
from bertzoo.nn.products import add_bias, product


class Dense(nn.Module):
    """An affine map (..., *I) -> (..., *O), where *O is `features`, with a kernel (*I, *O) and a bias (*O).

    axes: names of the kernel's axes, those of *I first. *I has len(axes) - len(features) axes.
    """

    features: tuple[int, ...]
    axes: tuple[str, ...]
    kernel_init: Callable
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        contracted = len(self.axes) - len(self.features)
        inputs = x.shape[x.ndim - contracted :]
        matrix = Matrix(contracted, len(self.features))
        kernel = parameter(self, "kernel", self.kernel_init, self.axes, (*inputs, *self.features), matrix)
        bias = parameter(self, "bias", nn.initializers.zeros, self.axes[contracted:], self.features)
        rows = x.shape[: x.ndim - contracted]
        flat = x.astype(self.dtype).reshape(*rows, math.prod(inputs))
        return add_bias(product(flat, kernel).reshape(*rows, *self.features), bias)


class DensePair(nn.Module):
    """An affine map of the concatenated vectors x and y: (..., D) and (..., D) -> (..., O); leading axes broadcast.

    The kernel is (2·D, O), the bias (O). Each half of the kernel multiplies one input before broadcasting, so all pairs
    of m vectors x and n vectors y cost m + n products instead of m · n.
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
        return product(x.astype(self.dtype), kernel[:width]) + product(y.astype(self.dtype), kernel[width:]) + bias
