"""Linear layers (dense ones and SqueezeBERT's grouped 1-D convolution) and norms over the last axis."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import Matrix, parameter
from bertzoo.nn.products import add_bias, batched_product, product


class Dense(nn.Module):
    """A linear layer (..., *I) -> (..., *O), where *O is `features`, with a kernel (*I, *O) and a bias (*O).

    axes: names of the kernel's axes, those of *I first. *I has len(axes) - len(features) axes.
    """

    features: tuple[int, ...]
    axes: tuple[str, ...]
    kernel_init: Callable
    dtype: jnp.dtype

    use_bias: ClassVar[bool] = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        contracted = len(self.axes) - len(self.features)
        inputs = x.shape[x.ndim - contracted :]
        matrix = Matrix(contracted, len(self.features))
        kernel = parameter(self, "kernel", self.kernel_init, self.axes, (*inputs, *self.features), matrix)
        rows = x.shape[: x.ndim - contracted]
        flat = x.astype(self.dtype).reshape(*rows, math.prod(inputs))
        y = product(flat, kernel).reshape(*rows, *self.features)
        if not self.use_bias:
            return y
        return add_bias(y, parameter(self, "bias", nn.initializers.zeros, self.axes[contracted:], self.features))


class DensePair(nn.Module):
    """A linear layer on the concatenated vectors x and y: (..., D) and (..., D) -> (..., O); leading axes broadcast.

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


def grouped_convolution(
    x_BLI: jax.Array, kernel: jax.Array, groups: int, stride: int = 1, dilation: int = 1, padding: int = 0
) -> jax.Array:
    """Convolve x (B,L,I) with a kernel (W,I/G,O) of G groups, as one XLA convolution; returns (B,L',O).

    L' = (L + 2·padding - dilation·(W-1) - 1) // stride + 1. Output channels [g·O/G, (g+1)·O/G) read input channels
    [g·I/G, (g+1)·I/G) (SqueezeBERT Eq. 3, torch.nn.Conv1d).
    """
    return jax.lax.conv_general_dilated(
        x_BLI,
        kernel,
        window_strides=(stride,),
        padding=((padding, padding),),
        rhs_dilation=(dilation,),
        dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=groups,
    )


def grouped_einsum(x_BLI: jax.Array, kernel: jax.Array, groups: int) -> jax.Array:
    """Return `grouped_convolution` (B,L,O) as G matrix products; raises ValueError unless the kernel's window is 1."""
    window, inputs, outputs = kernel.shape
    if window != 1:
        raise ValueError(f"the kernel has window {window}, not 1. Use grouped_convolution.")
    # The group comes first, as the batch axis: on CPU the products then run as fast as dense ones, while
    # "blgi,igo->blgo" spends 40 % on transposes in the backward pass.
    x_GNI = x_BLI.reshape(-1, groups, inputs).swapaxes(0, 1)
    kernel_GIO = kernel.reshape(inputs, groups, outputs // groups).swapaxes(0, 1)
    y_GNO = batched_product("gni,gio->gno", x_GNI, kernel_GIO)
    return y_GNO.swapaxes(0, 1).reshape(*x_BLI.shape[:-1], outputs)


class Grouped(nn.Module):
    """A grouped convolution (B,L,*I) -> (B,L',*O), where *O is `features`, with kernel (W,I/G,O) and bias (O).

    The channel axes *I and *O are flattened to I and O channels. L' is as in `grouped_convolution`. `grouped_einsum`
    computes windows of 1 with stride 1 and no padding, which is faster.
    """

    features: tuple[int, ...]
    groups: int
    kernel_init: Callable
    dtype: jnp.dtype
    window: int = 1
    stride: int = 1
    dilation: int = 1
    padding: int = 0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x_BLI = x.reshape(*x.shape[:2], -1).astype(self.dtype)
        inputs, outputs = x_BLI.shape[-1], math.prod(self.features)
        if inputs % self.groups or outputs % self.groups:
            raise ValueError(
                f"groups = {self.groups} must divide {inputs} inputs and {outputs} outputs. Use a common divisor."
            )
        shape = self.window, inputs // self.groups, outputs
        names = ("window", "group_in", "group_out")
        kernel = parameter(self, "kernel", self.kernel_init, names, shape, Matrix(2, 1, self.groups))
        kernel = kernel.astype(self.dtype)
        bias = parameter(self, "bias", nn.initializers.zeros, ("group_out",), (outputs,))
        if (self.window, self.stride, self.padding) == (1, 1, 0):
            y_BLO = grouped_einsum(x_BLI, kernel, self.groups)
        else:
            y_BLO = grouped_convolution(x_BLI, kernel, self.groups, self.stride, self.dilation, self.padding)
        return add_bias(y_BLO, bias).reshape(*y_BLO.shape[:2], *self.features)


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
