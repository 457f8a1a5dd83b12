"""Layers of the export graph, without a batch axis; nn/__init__.py defines the dimension letters.

Every layer is a pytree of float32 arrays with a pure `__call__`, so a rewrite of the graph maps pytrees to pytrees.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from bertzoo.nn.int8 import update_scale

Array = Any  # a numpy array while the graph is rewritten, a JAX array while it is traced


class Map(Protocol):
    """A layer that maps I columns to O columns: (L,I) -> (L,O)."""

    def __call__(self, x: jax.Array) -> jax.Array: ...


def _composite(function: Callable, name: str, **attributes: Any) -> Callable:
    """Wrap a function as the JAX composite `name`, which converters replace by a single operator."""
    named = jax.lax.composite(lambda *arguments, **_: function(*arguments), name=name)
    return lambda *arguments: named(*arguments, **attributes)


# Without composites, one erf gelu becomes about 40 LiteRT operators, and the quantiser skips embedding look-ups.
gelu = _composite(lambda x: 0.5 * x * (1 + jax.lax.erf(x * 0.5**0.5)), "aten.gelu.default", approximate="none")
gelu_tanh = _composite(lambda x: jax.nn.gelu(x, approximate=True), "aten.gelu.default", approximate="tanh")
_lookup = _composite(lambda ids_L, table_VE: table_VE[ids_L], "odml.embedding_lookup")


def lookup(ids_L: jax.Array, table_VE: Array) -> jax.Array:
    """Return the table's rows for the ids, (L,E); an id outside 0…V-1 reads the first or last row.

    LiteRT's look-up fails on such an id, and `litert-benchmark` fills ids with -128 to 127.
    """
    return _lookup(jnp.clip(ids_L, 0, len(table_VE) - 1), table_VE)


class Affine(struct.PyTreeNode):
    """Dense layer (..., I) -> (..., O): x · kernel (I,O) + bias (O)."""

    kernel: Array
    bias: Array
    groups: int = struct.field(pytree_node=False, default=1)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.kernel + self.bias


class GroupedAffine(struct.PyTreeNode):
    """Dense layer in G groups, (L,I) -> (L,O), kernel (I/G,O).

    Group g maps input columns [g·I/G, (g+1)·I/G) to output columns [g·O/G, (g+1)·O/G).
    """

    kernel: Array
    bias: Array
    groups: int = struct.field(pytree_node=False)

    def __call__(self, x: jax.Array) -> jax.Array:
        image = x[None, None]  # runtimes support groups only in two-dimensional convolutions
        y = jax.lax.conv_general_dilated(
            image,
            self.kernel[None, None],
            window_strides=(1, 1),
            padding="VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=self.groups,
        )
        return (y + self.bias).reshape(y.shape[2:])  # the converter fuses a sum right after a convolution


class Concat(struct.PyTreeNode):
    """Map (L,I) to (L,O): split the columns equally among the parts and concatenate the parts' outputs."""

    parts: tuple[Map, ...]

    def __call__(self, x: jax.Array) -> jax.Array:
        shares = jnp.split(x, len(self.parts), axis=-1)
        return jnp.concatenate([part(share) for part, share in zip(self.parts, shares, strict=True)], axis=-1)


def float32(x: Any) -> np.ndarray:
    """Convert an array, such as a rewrite's float64 result, to contiguous float32."""
    return np.ascontiguousarray(x, np.float32)


def scaled(part: Any, factor: Any, shift: Any = 0.0) -> Any:
    """Return the affine map x -> part(x) · factor + shift. factor, shift: arrays (O) or numbers."""
    factor = np.asarray(factor, np.float64)
    return part.replace(kernel=float32(part.kernel * factor), bias=float32(part.bias * factor + shift))


class GraphLayerNorm(struct.PyTreeNode):
    """Layer normalisation over the last axis, (..., D) -> (..., D), as in nn.LayerNorm."""

    scale: Array
    bias: Array
    epsilon: float = struct.field(pytree_node=False)

    def __call__(self, x: jax.Array) -> jax.Array:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + self.epsilon) * self.scale + self.bias

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        """Return the norm of x + update."""
        return self(x + update)


class GraphNoNorm(struct.PyTreeNode):
    """MobileBERT's NoNorm, (..., D) -> (..., D): x · scale + bias."""

    scale: Array
    bias: Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return x * self.scale + self.bias

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        """Return the norm of x + update."""
        return self(x + update)


class Residual(struct.PyTreeNode):
    """A residual connection without a norm, x + update."""

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        """Return x + update."""
        return x + update


class ScaledResidual(struct.PyTreeNode):
    """Residual connection x · scale + update, in place of a NoNorm whose scale and bias are already in `update`."""

    scale: Array

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        """Return x · scale + update."""
        return x * self.scale + update


class ScaledUpdate(struct.PyTreeNode):
    """Residual connection norm.join(x, update · scale), where the map before it computes the update divided by scale.

    An int8 file has one grid for all channels of a map's output. With a scale per channel (D), each channel uses the
    whole grid.
    """

    norm: Any
    scale: Array

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        """Return norm.join(x, update · scale); the barrier keeps the converter from undoing the division."""
        return self.norm.join(x, jax.lax.optimization_barrier(update) * self.scale)


class MeasuredUpdate(struct.PyTreeNode):
    """Residual connection norm.join(x, update) that passes the update's `update_scale` (D) to `note`.

    place: the first argument of `note`, which identifies the part that computes the update.
    """

    norm: Any
    place: int = struct.field(pytree_node=False)
    note: Callable[[int, jax.Array], None] = struct.field(pytree_node=False)

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        """Return norm.join(x, update)."""
        self.note(self.place, update_scale(update, axis=0))
        return self.norm.join(x, update)


class GraphBottleneck(struct.PyTreeNode):
    """MobileBERT's bottleneck, (L,D) -> (L,I): norm(dense(x))."""

    dense: Map
    norm: Map

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.dense(x))


class GraphFeedForward(struct.PyTreeNode):
    """Feed-forward network, (L,D) -> (L,D): output(activation(intermediate(x)) · gate(x)); `gate` may be None."""

    intermediate: Map
    output: Map
    activation: Callable = struct.field(pytree_node=False)
    gate: Map | None = None

    def __call__(self, x: jax.Array) -> jax.Array:
        inner = self.activation(self.intermediate(x))
        return self.output(inner if self.gate is None else inner * self.gate(x))
