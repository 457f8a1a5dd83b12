"""Declare a layer's parameter, and find the shapes of all parameters of a model."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

_shapes_only: ContextVar[bool] = ContextVar("shapes_only", default=False)


def parameter(module: nn.Module, name: str, init: Callable, axes: Sequence[str], shape: Sequence[int]) -> jax.Array:
    """Return the module's float32 parameter; when it is initialised, box it with one logical name per dimension.

    Raises ValueError if an existing parameter has another shape.
    """
    shape = tuple(shape)
    if not module.is_initializing() and module.has_variable("params", name):
        # `module.param` would trace the initialiser again to compare shapes, half the time of tracing a model.
        value: Any = nn.unbox(module.get_variable("params", name))
        if value.shape != shape:
            where = "/".join((*module.path, name))
            raise ValueError(f"parameter {where} has shape {value.shape}; its module is built for {shape}")
        return value
    if _shapes_only.get():
        init = nn.initializers.zeros
        boxed: Any = nn.with_logical_partitioning(init, tuple(axes))(None, shape, jnp.float32)
        module.put_variable("params", name, boxed)
        return nn.unbox(boxed)
    return module.param(name, nn.with_logical_partitioning(init, tuple(axes)), shape, jnp.float32)  # type: ignore


def init_shapes(init: Callable, *args: Any) -> Any:
    """Return `jax.eval_shape(init, *args)` in a fraction of the time: random draws are not traced.

    `init` must not depend on parameter values.
    """
    token = _shapes_only.set(True)
    try:
        # A new function each time: JAX caches traces by function, and this trace is only valid here.
        return jax.eval_shape(lambda *inner: init(*inner), *args)
    finally:
        _shapes_only.reset(token)


def zeros_beyond(size: int, axis: int, init: Callable) -> Callable:
    """Return an initialiser that draws `size` entries along an axis and fills the rest with zeros."""

    def filled(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        drawn = init(key, (*shape[:axis], size, *shape[axis + 1 :]), dtype)
        return jnp.pad(drawn, [(0, shape[i] - drawn.shape[i]) for i in range(len(shape))])

    return filled
