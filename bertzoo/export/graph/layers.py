"""Maps and norms of the export graph, for one sentence; dimension letters as in nn/__init__.py.

A part is a pytree of float32 arrays with a pure call, so a rewrite is a function from parts to parts.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

Array = Any  # of numpy while the graph is rewritten, of JAX while it is traced


class Map(Protocol):
    """(L,I) -> (L,O)."""

    def __call__(self, x: jax.Array) -> jax.Array: ...


def _composite(function: Callable, name: str, **attributes: Any) -> Callable:
    """A function under a name that converters replace by an operator of their own."""
    named = jax.lax.composite(lambda *arguments, **_: function(*arguments), name=name)
    return lambda *arguments: named(*arguments, **attributes)


# Without the names, one erf gelu becomes about 40 LiteRT operators, and the quantiser skips look-ups.
gelu = _composite(lambda x: 0.5 * x * (1 + jax.lax.erf(x * 0.5**0.5)), "aten.gelu.default", approximate="none")
gelu_tanh = _composite(lambda x: jax.nn.gelu(x, approximate=True), "aten.gelu.default", approximate="tanh")
lookup = _composite(lambda ids_L, table_VE: table_VE[ids_L], "odml.embedding_lookup")


class Affine(struct.PyTreeNode):
    """(..., I) -> (..., O): x · kernel (I,O) + bias (O)."""

    kernel: Array
    bias: Array
    groups: int = struct.field(pytree_node=False, default=1)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.kernel + self.bias


class GroupedAffine(struct.PyTreeNode):
    """(L,I) -> (L,O): output columns [g·O/G, (g+1)·O/G) read input columns [g·I/G, (g+1)·I/G); kernel (I/G,O)."""

    kernel: Array
    bias: Array
    groups: int = struct.field(pytree_node=False)

    def __call__(self, x: jax.Array) -> jax.Array:
        image = x[None, None]  # runtimes group only two-dimensional convolutions
        y = jax.lax.conv_general_dilated(
            image,
            self.kernel[None, None],
            window_strides=(1, 1),
            padding="VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=self.groups,
        )
        return y.reshape(y.shape[2:]) + self.bias


class SideBySide(struct.PyTreeNode):
    """(L,I) -> (L,O): every part maps its share of the columns; their outputs are concatenated."""

    parts: tuple[Map, ...]

    def __call__(self, x: jax.Array) -> jax.Array:
        shares = jnp.split(x, len(self.parts), axis=-1)
        return jnp.concatenate([part(share) for part, share in zip(self.parts, shares, strict=True)], axis=-1)


def float32(x: Any) -> np.ndarray:
    """The float64 result of a rewrite as float32."""
    return np.ascontiguousarray(x, np.float32)


def scaled(part: Any, factor: Any, shift: Any = 0.0) -> Any:
    """An affine map whose output is multiplied by `factor` and then shifted by `shift`, each (O) or a number."""
    factor = np.asarray(factor, np.float64)
    return part.replace(kernel=float32(part.kernel * factor), bias=float32(part.bias * factor + shift))


class GraphLayerNorm(struct.PyTreeNode):
    """(..., D) -> (..., D), as nn.LayerNorm."""

    scale: Array
    bias: Array
    epsilon: float = struct.field(pytree_node=False)

    def __call__(self, x: jax.Array) -> jax.Array:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + self.epsilon) * self.scale + self.bias

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        """norm(residual + update)."""
        return self(x + update)


class GraphNoNorm(struct.PyTreeNode):
    """(..., D) -> (..., D): x · scale + bias."""

    scale: Array
    bias: Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return x * self.scale + self.bias

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        """norm(residual + update)."""
        return self(x + update)


class ScaledResidual(struct.PyTreeNode):
    """A NoNorm whose scale and bias are folded into the update: x · scale + update."""

    scale: Array

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        """scale · residual + update."""
        return x * self.scale + update


class Narrow(struct.PyTreeNode):
    """(L,D) -> (L,I): norm(dense(x))."""

    dense: Map
    norm: Map

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.dense(x))


class GraphFeedForward(struct.PyTreeNode):
    """(L,D) -> (L,D): output(activation(intermediate(x)))."""

    intermediate: Map
    output: Map
    activation: Callable = struct.field(pytree_node=False)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.output(self.activation(self.intermediate(x)))
