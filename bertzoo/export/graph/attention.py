"""Attention of the export graph: projections, attention heads and ConvBERT's convolution heads."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from bertzoo.export.graph.layers import Array, Map
from bertzoo.nn.attention import MASKED_SCORE
from bertzoo.nn.modern import block_size, join_neighbours, near_in_blocks, rotate, split_blocks


class Projection(struct.PyTreeNode):
    """A linear map in an Attention.

    name: what it computes: "query", "key", "value", "convolved" or "gate".
    reads: its input, one of the four arrays "source", "values", "first" and "near" that Attention explains.
    """

    map: Any  # Affine, GroupedAffine or Concat
    name: str = struct.field(pytree_node=False)
    reads: str = struct.field(pytree_node=False)


def split_heads(x_LO: jax.Array, heads: int) -> jax.Array:
    """Split the columns into heads: (L,H·K) -> (H,L,K)."""
    return x_LO.reshape(len(x_LO), heads, -1).transpose(1, 0, 2)


def depthwise(x_LC: jax.Array, kernel_WC: Array, rows: int) -> jax.Array:
    """Convolve each of C channels with zero padding, (L,C) -> (R,C); compute only the first R = `rows` output rows."""
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
    """Return the input from which a convolution without padding computes `rows` output rows.

    It has rows + window - 1 rows: window // 2 rows of zeros, the first rows of x and, if x has too few, more zeros.
    """
    behind = rows + window // 2 - len(x)
    return jnp.pad(x, ((window // 2, max(0, behind)), *[(0, 0)] * (x.ndim - 1)))[: rows + window - 1]


class SeparableMap(struct.PyTreeNode):
    """Depth-wise separable convolution, (L,D) -> (R,H·K): pointwise(depthwise(x)) at the first R = `rows` tokens."""

    depthwise: Array
    pointwise: Map

    def __call__(self, x_LD: jax.Array, rows: int) -> jax.Array:
        return self.pointwise(depthwise(x_LD, self.depthwise, rows))


class Dynamic(struct.PyTreeNode):
    """ConvBERT's convolution heads, with a kernel for each token.

    The kernel is computed from the span around the token or, if `span_key` is None, from the token's gated value.
    """

    span_key: SeparableMap | None
    generator: Map
    window: int = struct.field(pytree_node=False)
    mask_padding: bool = struct.field(pytree_node=False)

    def __call__(self, x_LD: jax.Array, projected: dict[str, jax.Array], mask_L: jax.Array, heads: int) -> jax.Array:
        """Return (R,H,J), J channels per head.

        projected: has "query", "convolved" and, if `span_key` is None, "gate".
        """
        rows, value_LC = len(projected["query"]), projected["convolved"]
        if self.span_key is None:
            value_LC = value_LC * jax.nn.sigmoid(projected["gate"])
            source_RC = value_LC[:rows]
        else:
            source_RC = self.span_key(_zeroed(x_LD, mask_L, self.mask_padding), rows) * projected["query"]
        kernel_RHW = jax.nn.softmax(self.generator(source_RC).reshape(rows, heads, self.window), axis=-1)
        value_LC = _zeroed(value_LC, mask_L, self.mask_padding)
        value_XHJ = _padded(value_LC, self.window, rows).reshape(rows + self.window - 1, heads, -1)
        taps = [kernel_RHW[..., tap, None] * value_XHJ[tap : tap + rows] for tap in range(self.window)]
        return sum(taps[1:], taps[0])


class Fixed(struct.PyTreeNode):
    """Convolution heads whose depth-wise separable kernel is the same at every token."""

    separable: SeparableMap
    mask_padding: bool = struct.field(pytree_node=False)

    @property
    def window(self) -> int:
        return self.separable.depthwise.shape[0]

    def __call__(self, x_LD: jax.Array, projected: dict[str, jax.Array], mask_L: jax.Array, heads: int) -> jax.Array:
        """Return x convolved at its first R tokens, (R,H,J): R rows as in projected["query"], J channels per head."""
        rows = len(projected["query"])
        return self.separable(_zeroed(x_LD, mask_L, self.mask_padding), rows).reshape(rows, heads, -1)


def _zeroed(x_LC: jax.Array, mask_L: jax.Array, mask_padding: bool) -> jax.Array:
    return x_LC * mask_L[: len(x_LC), None] if mask_padding else x_LC


class Attention(struct.PyTreeNode):
    """Multi-head attention, optionally with convolution heads, for the first R = `rows` tokens.

    A call maps source_LD and values_LI to (R,D): output([softmax(scale · qkᵀ + masked_M) · v, convolved heads]).
    masked_M is 0 at tokens and a large negative number at padding.

    projections: each reads one of four arrays: "source", "values", "first" (the first R rows of the source) or "near"
    (the first R rows of the source and the rows behind these that a convolution window reaches).
    output: None returns the concatenated heads.
    scale: factor of qkᵀ; 1 if the linear map of the queries already includes this factor.
    theta, reach: as in nn.RotaryAttention; theta is None without rotary positions.
    """

    projections: tuple[Projection, ...]
    convolution: Any
    output: Map | None
    heads: int = struct.field(pytree_node=False)
    scale: float = struct.field(pytree_node=False)
    theta: float | None = struct.field(pytree_node=False, default=None)
    reach: int | None = struct.field(pytree_node=False, default=None)

    def __call__(
        self, source_LD: jax.Array, values_LI: jax.Array, masked_M: jax.Array, mask_L: jax.Array, rows: int
    ) -> jax.Array:
        near = rows + (self.convolution.window // 2 if self.convolution is not None else 0)
        read = {"source": source_LD, "values": values_LI, "first": source_LD[:rows], "near": source_LD[:near]}
        projected = {one.name: one.map(read[one.reads]) for one in self.projections}
        query, key, value = (split_heads(projected[name], self.heads) for name in ("query", "key", "value"))
        if self.scale != 1.0:
            query = query * self.scale
        if self.theta is not None:
            query, key = (_rotated(x, self.theta) for x in (query, key))
        if self.reach is None or self.reach >= len(masked_M) - 1:
            scores_HRM = jnp.einsum("hrk,hmk->hrm", query, key) + masked_M
            context_RHJ = jnp.einsum("hrm,hmj->rhj", jax.nn.softmax(scores_HRM, axis=-1), value)
        else:
            context_RHJ = _attend_near(query, key, value, masked_M, self.reach)
        if self.convolution is not None:
            convolved_RHJ = self.convolution(source_LD, projected, mask_L, self.heads)
            context_RHJ = jnp.concatenate([context_RHJ, convolved_RHJ], axis=1)
        context_RO = context_RHJ.reshape(rows, -1)
        return context_RO if self.output is None else self.output(context_RO)


def _attend_near(
    query_HRK: jax.Array, key_HMK: jax.Array, value_HMJ: jax.Array, masked_M: jax.Array, reach: int
) -> jax.Array:
    """Return the context (R,H,J) of R tokens, the row's first, by the keys up to `reach` tokens away.

    In N blocks if all tokens have queries, as in nn.attend_near; else N is 1.
    """
    rows, length = query_HRK.shape[1], len(masked_M)
    size = block_size(reach, length) if rows == length else None
    if size is None:
        near_RX = np.abs(np.arange(rows)[:, None] - np.arange(length)) <= reach
        query, key, value, hidden_1NX = (x[:, None] for x in (query_HRK, key_HMK, value_HMJ, masked_M[None]))
    else:
        near_RX = near_in_blocks(reach, size)
        query = split_blocks(query_HRK, size)
        key, value = (join_neighbours(split_blocks(x, size)) for x in (key_HMK, value_HMJ))
        # Zeros fill the blocks, so a token is what differs from MASKED_SCORE.
        hidden_1NX = join_neighbours(split_blocks(masked_M[None] - MASKED_SCORE, size)) + MASKED_SCORE
    far_RX = np.where(near_RX, 0, MASKED_SCORE).astype(np.float32)
    hidden_NRX = jnp.minimum(hidden_1NX[0][:, None], far_RX)
    scores_HNRX = jnp.einsum("hnrk,hnxk->hnrx", query, key) + hidden_NRX
    context_HNRJ = jnp.einsum("hnrx,hnxj->hnrj", jax.nn.softmax(scores_HNRX, axis=-1), value)
    sees_NR1 = 1 - jnp.max(hidden_NRX, axis=-1, keepdims=True) / MASKED_SCORE  # 1, or 0 if padding sees only padding
    context_HNRJ = context_HNRJ * sees_NR1
    return context_HNRJ.reshape(len(context_HNRJ), -1, context_HNRJ.shape[-1])[:, :rows].transpose(1, 0, 2)


def _rotated(x_HLK: jax.Array, theta: float) -> jax.Array:
    """Return nn.modern.rotate of the rows (H,L,K), whose positions are 0 to L - 1."""
    places_1L = jnp.arange(x_HLK.shape[1])[None]
    return rotate(x_HLK.transpose(1, 0, 2)[None], places_1L, theta)[0].transpose(1, 0, 2)


class AttentionSideBySide(struct.PyTreeNode):
    """Attention whose heads are split into `parts`.

    Each part reads an equal share of the input's columns; `output` maps the concatenated heads of all parts.
    """

    parts: tuple[Any, ...]
    output: Map

    def __call__(
        self, source_LD: jax.Array, values_LI: jax.Array, masked_M: jax.Array, mask_L: jax.Array, rows: int
    ) -> jax.Array:
        sources, values = (jnp.split(x, len(self.parts), axis=-1) for x in (source_LD, values_LI))
        inputs = zip(self.parts, sources, values, strict=True)
        heads = [part(source, value, masked_M, mask_L, rows) for part, source, value in inputs]
        return self.output(jnp.concatenate(heads, axis=-1))
