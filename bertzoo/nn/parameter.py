"""Declare a layer's parameter, and find the shapes of all parameters of a model."""

import dataclasses
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

glorot_uniform = nn.initializers.glorot_uniform()  # one function, so that equal modules compare equal and share traces
_shapes_only: ContextVar[bool] = ContextVar("shapes_only", default=False)


class Matrix(NamedTuple):
    """How the axes of a kernel form matrices.

    inputs, outputs: numbers of axes. The last `outputs` axes are the outputs of a matrix, and the `inputs` axes before
    them are its inputs. If there are more axes, they come first, and each of their indices has its own matrix.
    """

    inputs: int
    outputs: int
    # number of matrices of equal size that lie side by side along the outputs, as in a grouped convolution
    groups: int = 1


@dataclasses.dataclass(frozen=True)
class TruncatedNormal:
    """An initialiser that compares by value, so that equal modules compare equal and share traces."""

    stddev: float

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any) -> jax.Array:
        return nn.initializers.truncated_normal(self.stddev)(key, shape, dtype)


class Kernel(nn.LogicallyPartitioned):
    """The Flax metadata box of a parameter; `matrix` describes how a kernel's axes form matrices."""

    matrix: Matrix | None = struct.field(default=None, pytree_node=False)


def parameter(
    module: nn.Module,
    name: str,
    init: Callable,
    axes: Sequence[str],
    shape: Sequence[int],
    matrix: Matrix | None = None,
) -> jax.Array:
    """Return the module's float32 parameter `name`; at initialisation, box it with a logical name for each axis.

    matrix: describes how the axes form matrices, for optimisers that update whole matrices. Raises ValueError if an
    existing parameter has another shape.
    """
    shape = tuple(shape)
    if not module.is_initializing() and module.has_variable("params", name):
        # `module.param` would trace the initialiser again to compare shapes, which is half the time of tracing a model.
        value: Any = nn.unbox(module.get_variable("params", name))
        if value.shape != shape:
            path = "/".join((*module.path, name))
            raise ValueError(f"parameter {path} has shape {value.shape}, not {shape}. Pass parameters of this model.")
        return value
    draw = nn.initializers.zeros if _shapes_only.get() else init

    def box(*args: Any) -> Any:
        return Kernel(draw(*args), tuple(axes), matrix=matrix)  # type: ignore[call-arg]

    if _shapes_only.get():
        boxed: Any = box(None, shape, jnp.float32)
        module.put_variable("params", name, boxed)
        return nn.unbox(boxed)
    return module.param(name, box, shape, jnp.float32)  # type: ignore


def init_shapes(init: Callable, *args: Any) -> Any:
    """Return `jax.eval_shape(init, *args)` faster, without tracing draws; `init` must not depend on parameters."""
    token = _shapes_only.set(True)
    try:
        # A new function each time: JAX caches traces by function, and this trace is only valid here.
        return jax.eval_shape(lambda *inner: init(*inner), *args)
    finally:
        _shapes_only.reset(token)
