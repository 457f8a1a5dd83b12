"""Affine maps: Dense, whose kernel has named axes such as heads and head size, and DensePair for two inputs."""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import Matrix, parameter


@jax.custom_vjp
def product(x: jax.Array, matrix_IO: jax.Array) -> jax.Array:
    """Return x (..., I) @ matrix (I, O), shape (..., O), with a gradient that is fast on CPUs."""
    return x @ matrix_IO


def _forward(x: jax.Array, matrix_IO: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return x @ matrix_IO, (x, matrix_IO)


def _backward(residuals: tuple[jax.Array, jax.Array], change: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, matrix_IO = residuals
    # With more than two axes, XLA's CPU backend copies and transposes both operands, then multiplies slower. With two,
    # libtpu needs a fifth more memory beside the parameters if the mesh splits parameters along its tensor axis.
    change_IO = jax.lax.platform_dependent(x, change, cpu=_over_rows, default=_over_axes)
    return change @ matrix_IO.T, change_IO


def _over_axes(x: jax.Array, change: jax.Array) -> jax.Array:
    """Return the gradient (I, O) of a product's matrix: the sum over all leading axes of xᵀ·change.

    change: gradient (..., O) of the product.
    """
    axes = tuple(range(x.ndim - 1))
    return jax.lax.dot_general(x, change, ((axes, axes), ((), ())))


def _over_rows(x: jax.Array, change: jax.Array) -> jax.Array:
    """Return the result of `_over_axes`, computed as one product of two matrices."""
    rows = math.prod(x.shape[:-1])
    return _over_axes(x.reshape(rows, -1), change.reshape(rows, -1))


product.defvjp(_forward, _backward)


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
        matrix_IO = kernel.astype(self.dtype).reshape(math.prod(inputs), math.prod(self.features))
        return product(flat, matrix_IO).reshape(*rows, *self.features) + bias.astype(self.dtype)


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
