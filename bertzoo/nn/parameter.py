"""How every leaf declares a parameter."""

from collections.abc import Callable, Sequence
from typing import cast

import flax.linen as nn
import jax
import jax.numpy as jnp


def parameter(module: nn.Module, name: str, init: Callable, axes: Sequence[str], shape: Sequence[int]) -> jax.Array:
    """The module's float32 parameter, boxed with one logical axis name for every dimension when it is initialised."""
    boxed = nn.with_logical_partitioning(init, tuple(axes))
    return cast(jax.Array, module.param(name, boxed, tuple(shape), jnp.float32))


def zeros_beyond(size: int, axis: int, init: Callable) -> Callable:
    """An initialiser that draws `size` along an axis, as if that were all, and fills what is beyond with zeros."""

    def filled(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        drawn = init(key, (*shape[:axis], size, *shape[axis + 1 :]), dtype)
        return jnp.pad(drawn, [(0, shape[i] - drawn.shape[i]) for i in range(len(shape))])

    return filled
