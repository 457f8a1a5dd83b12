"""Dense: an affine map whose kernel keeps the axes it means (heads apart from head size)."""

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
