"""Attention of the export graph: projections that may be merged, heads that attend, heads that convolve."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from bertzoo.export.graph.layers import Array, Map


class Projection(struct.PyTreeNode):
    """One map of what `reads` names, whose outputs are, side by side within every group, those in `names`.

    sizes: of every output, over all groups.
    """

    map: Map
    names: tuple[str, ...] = struct.field(pytree_node=False)
    sizes: tuple[int, ...] = struct.field(pytree_node=False)
    reads: str = struct.field(pytree_node=False)
    groups: int = struct.field(pytree_node=False, default=1)

    def __call__(self, x_LI: jax.Array) -> dict[str, jax.Array]:
        """Each output (L,O)."""
        y_LO = self.map(x_LI)
        if len(self.names) == 1:
            return {self.names[0]: y_LO}
        y_LGO = y_LO.reshape(len(y_LO), self.groups, -1) if self.groups > 1 else y_LO
        found, start = {}, 0
        for name, size in zip(self.names, self.sizes, strict=True):
            end = start + size // self.groups
            found[name] = y_LGO[..., start:end].reshape(len(y_LO), size)
            start = end
        return found

    def by_heads(self, x_LI: jax.Array, heads: int) -> dict[str, jax.Array]:
        """Each output (H,L,K); where all are of one size, and groups hold whole heads, after one transposition."""
        if len(set(self.sizes)) > 1 or heads % self.groups:
            return {name: split_heads(y_LO, heads) for name, y_LO in self(x_LI).items()}
        count, inside = len(self.names), heads // self.groups
        y = self.map(x_LI).reshape(len(x_LI), self.groups, count, inside, -1)
        y_XHLK = y.transpose(2, 1, 3, 0, 4).reshape(count, heads, len(x_LI), -1)
        return {name: y_XHLK[index] for index, name in enumerate(self.names)}


def split_heads(x_LO: jax.Array, heads: int) -> jax.Array:
    """(L,H·K) -> (H,L,K)."""
    return x_LO.reshape(len(x_LO), heads, -1).transpose(1, 0, 2)


def depthwise(x_LC: jax.Array, kernel_WC: Array, rows: int) -> jax.Array:
    """(L,C) -> (R,C): every channel by itself, the first `rows` of the outputs, zeros outside."""
    window, channels = kernel_WC.shape
    return jax.lax.conv_general_dilated(
        _padded(x_LC, window, rows)[None, None],
        kernel_WC[None, :, None],
        window_strides=(1, 1),
        padding="VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=channels,
    )[0, 0]


def _padded(x: jax.Array, window: int, rows: int) -> jax.Array:
    """As many of x as windows around its first `rows` see, with zeros before the first and after the last."""
    behind = rows + window // 2 - len(x)
    return jnp.pad(x, ((window // 2, max(0, behind)), *[(0, 0)] * (x.ndim - 1)))[: rows + window - 1]


class SpanKey(struct.PyTreeNode):
    """(L,D) -> (R,H·K): pointwise(depthwise(x))."""

    depthwise: Array
    pointwise: Map

    def __call__(self, x_LD: jax.Array, rows: int) -> jax.Array:
        return self.pointwise(depthwise(x_LD, self.depthwise, rows))


class Dynamic(struct.PyTreeNode):
    """Values convolved with kernels made from the span around a token, or, without a span key, projected from it."""

    span_key: SpanKey | None
    generator: Map | None
    window: int = struct.field(pytree_node=False)
    mask_padding: bool = struct.field(pytree_node=False)

    def __call__(self, x_LD: jax.Array, found: dict[str, jax.Array], mask_L: jax.Array, heads: int) -> jax.Array:
        """(R,H,J) of what the projections `found`: convolved, query, and kernel where there is no span key."""
        rows = len(found["query"])
        if self.span_key is None or self.generator is None:
            logits = found["kernel"]
        else:
            logits = self.generator(self.span_key(_zeroed(x_LD, mask_L, self.mask_padding), rows) * found["query"])
        kernel_RHW = jax.nn.softmax(logits.reshape(rows, heads, self.window), axis=-1)
        value_LC = _zeroed(found["convolved"], mask_L, self.mask_padding)
        value_XHJ = _padded(value_LC, self.window, rows).reshape(rows + self.window - 1, heads, -1)
        taps = [kernel_RHW[..., tap, None] * value_XHJ[tap : tap + rows] for tap in range(self.window)]
        return sum(taps[1:], taps[0])


class Fixed(struct.PyTreeNode):
    """Values convolved with one kernel (W,H·J) a channel."""

    kernel: Array
    mask_padding: bool = struct.field(pytree_node=False)

    @property
    def window(self) -> int:
        return self.kernel.shape[0]

    def __call__(self, x_LD: jax.Array, found: dict[str, jax.Array], mask_L: jax.Array, heads: int) -> jax.Array:
        """(R,H,J) of what the projections `found`: convolved, and query, for how many are wanted."""
        rows = len(found["query"])
        value_LC = _zeroed(found["convolved"], mask_L, self.mask_padding)
        return depthwise(value_LC, self.kernel, rows).reshape(rows, heads, -1)


def _zeroed(x_LC: jax.Array, mask_L: jax.Array, mask_padding: bool) -> jax.Array:
    return x_LC * mask_L[: len(x_LC), None] if mask_padding else x_LC


class Attention(struct.PyTreeNode):
    """(L,D) and what values are read from -> (R,D): output(softmax(scale · qkᵀ + masked) · v, and convolved heads).

    output: None for the heads themselves. scale: 1 once the query has it. What a projection reads: `source`; `values`,
    where these are read from elsewhere; `first`, the first R of the source; `near`, the source as far as windows
    around those see.
    """

    projections: tuple[Projection, ...]
    convolution: Any
    output: Map | None
    heads: int = struct.field(pytree_node=False)
    scale: float = struct.field(pytree_node=False)

    def __call__(
        self, source_LD: jax.Array, values_LI: jax.Array, masked_M: jax.Array, mask_L: jax.Array, rows: int
    ) -> jax.Array:
        near = rows + (self.convolution.window // 2 if self.convolution is not None else 0)
        read = {
            "source": source_LD,
            "values": values_LI,
            "first": source_LD[:rows],
            "near": source_LD[:near],
        }
        found: dict[str, jax.Array] = {}
        for projection in self.projections:
            given = read[projection.reads]
            found |= projection.by_heads(given, self.heads) if self.convolution is None else projection(given)
        query, key, value = (found[name] for name in ("query", "key", "value"))
        if self.convolution is not None:
            query, key, value = (split_heads(each, self.heads) for each in (query, key, value))
        if self.scale != 1.0:
            query = query * self.scale
        scores_HRM = jnp.einsum("hrk,hmk->hrm", query, key) + masked_M
        context_RHJ = jnp.einsum("hrm,hmj->rhj", jax.nn.softmax(scores_HRM, axis=-1), value)
        if self.convolution is not None:
            convolved_RHJ = self.convolution(source_LD, found, mask_L, self.heads)
            context_RHJ = jnp.concatenate([context_RHJ, convolved_RHJ], axis=1)
        context_RO = context_RHJ.reshape(rows, -1)
        return context_RO if self.output is None else self.output(context_RO)


class AttentionApart(struct.PyTreeNode):
    """As Attention: every part's heads read their share of the columns, and `output` all heads."""

    parts: tuple[Any, ...]
    output: Map

    def __call__(
        self, source_LD: jax.Array, values_LI: jax.Array, masked_M: jax.Array, mask_L: jax.Array, rows: int
    ) -> jax.Array:
        sources, values = (jnp.split(each, len(self.parts), axis=-1) for each in (source_LD, values_LI))
        given = zip(self.parts, sources, values, strict=True)
        heads = [part(source, value, masked_M, mask_L, rows) for part, source, value in given]
        return self.output(jnp.concatenate(heads, axis=-1))
