"""How a leaf module declares a parameter, and how a caller learns the shapes of all parameters of a model."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

_shapes_only: ContextVar[bool] = ContextVar("shapes_only", default=False)


def parameter(module: nn.Module, name: str, init: Callable, axes: Sequence[str], shape: Sequence[int]) -> jax.Array:
    """Return the module's float32 parameter; when it is initialised, box it with one logical name per dimension.

    Raises ValueError where an existing parameter has another shape.
    """
    shape = tuple(shape)
    if not module.is_initializing() and module.has_variable("params", name):
        # `module.param` would trace the initialiser again, to compare shapes: half the time of tracing a model.
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
    """Return what `jax.eval_shape(init, *args)` returns, in a fraction of the time: no drawing is traced.

    Only the shapes, dtypes and boxes of the result mean anything, so `init` must not read parameter values.
    """
    token = _shapes_only.set(True)
    try:
        # A new function each time, as JAX caches traces by function, and this one must serve nobody else.
        return jax.eval_shape(lambda *inner: init(*inner), *args)
    finally:
        _shapes_only.reset(token)


def zeros_beyond(size: int, axis: int, init: Callable) -> Callable:
    """An initialiser that draws `size` along an axis, as if that were all, and fills what is beyond with zeros."""

    def filled(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        drawn = init(key, (*shape[:axis], size, *shape[axis + 1 :]), dtype)
        return jnp.pad(drawn, [(0, shape[i] - drawn.shape[i]) for i in range(len(shape))])

    return filled
