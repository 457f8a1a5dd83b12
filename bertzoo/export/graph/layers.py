"""The export graph of a model and its layers, without a batch axis; nn/__init__.py defines the dimension letters.

Every layer is a pytree of float32 arrays with a pure `__call__`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from bertzoo.heads.base import TYPES
from bertzoo.nn.attention import MASKED_SCORE
from bertzoo.nn.modern import block_size, join_neighbours, near_in_blocks, rotate, split_blocks

Array = Any  # a numpy array while the graph is built, a JAX array while it is traced
Layer = Callable[[jax.Array], jax.Array]  # (L,I) -> (L,O)


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


def _apply(layer: Layer | None, x: jax.Array) -> jax.Array:
    return x if layer is None else layer(x)


class Affine(struct.PyTreeNode):
    """Dense layer (..., I) -> (..., O): x · kernel (I,O) + bias (O)."""

    kernel: Array
    bias: Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.kernel + self.bias


class Concat(struct.PyTreeNode):
    """Map (L,I) to (L,O): split the columns equally among the layers and concatenate these layers' outputs."""

    layers: tuple[Layer, ...]

    def __call__(self, x: jax.Array) -> jax.Array:
        inputs = jnp.split(x, len(self.layers), axis=-1)
        return jnp.concatenate([layer(columns) for layer, columns in zip(self.layers, inputs, strict=True)], axis=-1)


def float32(x: Any) -> np.ndarray:
    """Convert an array, such as a float64 product, to contiguous float32."""
    return np.ascontiguousarray(x, np.float32)


def scaled(layer: Any, factor: Any, shift: Any = 0.0) -> Any:
    """Multiply the output of a linear layer, a feed-forward or an attention by `factor` (D), and add `shift` (D)."""
    if isinstance(layer, Concat):
        factors, shifts = (np.split(x, len(layer.layers)) for x in np.broadcast_arrays(factor, shift))
        return layer.replace(layers=tuple(map(scaled, layer.layers, factors, shifts)))
    if hasattr(layer, "output"):
        return layer.replace(output=scaled(layer.output, factor, shift))
    factor, shift = (np.asarray(x, np.float64) for x in (factor, shift))
    return layer.replace(kernel=float32(layer.kernel * factor), bias=float32(layer.bias * factor + shift))


class GraphLayerNorm(struct.PyTreeNode):
    """Layer normalisation over the last axis, (..., D) -> (..., D), as in nn.LayerNorm."""

    scale: Array
    bias: Array
    epsilon: float = struct.field(pytree_node=False)

    def __call__(self, x: jax.Array) -> jax.Array:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + self.epsilon) * self.scale + self.bias

    def join(self, x: jax.Array, branch: jax.Array) -> jax.Array:
        """Return the norm of x + branch."""
        return self(x + branch)


class Residual(struct.PyTreeNode):
    """Residual connection x + branch; with `scale` that of a NoNorm whose scale and bias are already in `branch`."""

    scale: Array | None = None

    def join(self, x: jax.Array, branch: jax.Array) -> jax.Array:
        """Return x + branch, or x · scale + branch."""
        return (x if self.scale is None else x * self.scale) + branch


class ScaledBranch(struct.PyTreeNode):
    """Residual connection norm.join(x, branch · scale), where the layer before it computes the branch divided by scale.

    An int8 file has one grid for all channels of a linear layer's output. With a scale per channel (D), each channel
    uses the whole grid.
    """

    norm: Any
    scale: Array

    def join(self, x: jax.Array, branch: jax.Array) -> jax.Array:
        """Return norm.join(x, branch · scale); the barrier keeps the converter from undoing the division."""
        return self.norm.join(x, jax.lax.optimization_barrier(branch) * self.scale)


class MeasuredBranch(struct.PyTreeNode):
    """Residual connection norm.join(x, branch) that passes a scale of each of the branch's channels (D) to `note`.

    The scale is 127 times the step of the finest int8 grid that has zero point 0 and holds the channel.
    number: the first argument of `note`, which identifies the residual branch.
    """

    norm: Any
    number: int = struct.field(pytree_node=False)
    note: Callable[[int, jax.Array], None] = struct.field(pytree_node=False)

    def join(self, x: jax.Array, branch: jax.Array) -> jax.Array:
        """Return norm.join(x, branch)."""
        self.note(self.number, jnp.max(jnp.maximum(branch, branch * (-127 / 128)), axis=0))
        return self.norm.join(x, branch)


class GraphBottleneck(struct.PyTreeNode):
    """MobileBERT's bottleneck, (L,D) -> (L,I): norm(dense(x))."""

    dense: Layer
    norm: Layer

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.dense(x))


class GraphFeedForward(struct.PyTreeNode):
    """Feed-forward network, (L,D) -> (L,D): output(activation(intermediate(x)) · gate(x)); `gate` may be None."""

    intermediate: Layer
    output: Layer
    activation: Callable = struct.field(pytree_node=False)
    gate: Layer | None = None

    def __call__(self, x: jax.Array) -> jax.Array:
        inner = self.activation(self.intermediate(x))
        return self.output(inner if self.gate is None else inner * self.gate(x))


def _padded(x: jax.Array, window: int, rows: int) -> jax.Array:
    """Return the input from which a convolution without padding computes `rows` output rows.

    It has rows + window - 1 rows: window // 2 rows of zeros, the first rows of x and, if x has too few, more zeros.
    """
    behind = rows + window // 2 - len(x)
    return jnp.pad(x, ((window // 2, max(0, behind)), *[(0, 0)] * (x.ndim - 1)))[: rows + window - 1]


class SeparableConvolution(struct.PyTreeNode):
    """Depth-wise separable convolution, (L,D) -> (R,H·K): pointwise(depthwise(x)) at the first R = `rows` tokens."""

    depthwise: Array
    pointwise: Layer

    def __call__(self, x_LD: jax.Array, rows: int) -> jax.Array:
        window, channels = self.depthwise.shape
        convolved_RD = jax.lax.conv_general_dilated(
            _padded(x_LD, window, rows)[None, None],
            self.depthwise[None, :, None],
            window_strides=(1, 1),
            padding="VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=channels,
        )[0, 0]
        return self.pointwise(convolved_RD)


class Dynamic(struct.PyTreeNode):
    """ConvBERT's convolution heads, with a kernel for each token.

    The kernel is computed from the span around the token or, if `span_key` is None, from the token's gated value.
    """

    value: Layer
    gate: Layer | None
    span_key: SeparableConvolution | None
    generator: Layer
    window: int = struct.field(pytree_node=False)
    mask_padding: bool = struct.field(pytree_node=False)

    def __call__(self, x_LD: jax.Array, query_RC: jax.Array, mask_L: jax.Array, heads: int) -> jax.Array:
        """Return (R,H,J), J channels per head, at the first R tokens, those of the query."""
        rows = len(query_RC)
        near_XD = x_LD[: rows + self.window // 2]  # the last window reaches behind the tokens to compute
        value_XC = self.value(near_XD)
        if self.gate is not None:
            value_XC = value_XC * jax.nn.sigmoid(self.gate(near_XD))
        if self.span_key is None:
            source_RC = value_XC[:rows]
        else:
            source_RC = self.span_key(_zeroed(x_LD, mask_L, self.mask_padding), rows) * query_RC
        kernel_RHW = jax.nn.softmax(self.generator(source_RC).reshape(rows, heads, self.window), axis=-1)
        value_XC = _zeroed(value_XC, mask_L, self.mask_padding)
        value_XHJ = _padded(value_XC, self.window, rows).reshape(rows + self.window - 1, heads, -1)
        taps = [kernel_RHW[..., tap, None] * value_XHJ[tap : tap + rows] for tap in range(self.window)]
        return sum(taps[1:], taps[0])


class Fixed(struct.PyTreeNode):
    """Convolution heads whose depth-wise separable kernel is the same at every token."""

    separable: SeparableConvolution
    mask_padding: bool = struct.field(pytree_node=False)

    def __call__(self, x_LD: jax.Array, query_RC: jax.Array, mask_L: jax.Array, heads: int) -> jax.Array:
        """Return (R,H,J) as Dynamic does; of the query, only the number of rows counts."""
        rows = len(query_RC)
        return self.separable(_zeroed(x_LD, mask_L, self.mask_padding), rows).reshape(rows, heads, -1)


def _zeroed(x_LC: jax.Array, mask_L: jax.Array, mask_padding: bool) -> jax.Array:
    return x_LC * mask_L[: len(x_LC), None] if mask_padding else x_LC


class Attention(struct.PyTreeNode, kw_only=True):
    """Multi-head attention, optionally with convolution heads, for the first R = `rows` tokens.

    A call maps source_LD and values_LI to (R,D): output([softmax(qkᵀ + masked_M) · v, convolved heads]).
    masked_M is 0 at tokens and a large negative number at padding.

    query: includes the factor 1/√K, for keys of size K.
    output: None returns the concatenated heads.
    theta, reach: as in nn.RotaryAttention; theta is None without rotary positions.
    """

    query: Layer
    key: Layer
    value: Layer
    convolution: Dynamic | Fixed | None
    output: Layer | None
    heads: int = struct.field(pytree_node=False)
    theta: float | None = struct.field(pytree_node=False, default=None)
    reach: int | None = struct.field(pytree_node=False, default=None)

    def __call__(
        self, source_LD: jax.Array, values_LI: jax.Array, masked_M: jax.Array, mask_L: jax.Array, rows: int
    ) -> jax.Array:
        query_RC = self.query(source_LD[:rows])
        query, key, value = (
            x.reshape(len(x), self.heads, -1).transpose(1, 0, 2)
            for x in (query_RC, self.key(source_LD), self.value(values_LI))
        )
        if self.theta is not None:
            query, key = (_rotated(x, self.theta) for x in (query, key))
        if self.reach is None or self.reach >= len(masked_M) - 1:
            scores_HRM = jnp.einsum("hrk,hmk->hrm", query, key) + masked_M
            context_RHJ = jnp.einsum("hrm,hmj->rhj", jax.nn.softmax(scores_HRM, axis=-1), value)
        else:
            context_RHJ = _attend_near(query, key, value, masked_M, self.reach)
        if self.convolution is not None:
            convolved_RHJ = self.convolution(source_LD, query_RC, mask_L, self.heads)
            context_RHJ = jnp.concatenate([context_RHJ, convolved_RHJ], axis=1)
        context_RO = context_RHJ.reshape(rows, -1)
        return _apply(self.output, context_RO)


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
    positions_1L = jnp.arange(x_HLK.shape[1])[None]
    return rotate(x_HLK.transpose(1, 0, 2)[None], positions_1L, theta)[0].transpose(1, 0, 2)


class GroupedAttention(struct.PyTreeNode):
    """Attention whose heads are split into `groups`.

    Each group reads an equal share of the input's columns; `output` maps the concatenated heads of all groups.
    """

    groups: tuple[Any, ...]
    output: Layer

    def __call__(
        self, source_LD: jax.Array, values_LI: jax.Array, masked_M: jax.Array, mask_L: jax.Array, rows: int
    ) -> jax.Array:
        sources = jnp.split(source_LD, len(self.groups), axis=-1)
        values = sources if values_LI is source_LD else jnp.split(values_LI, len(self.groups), axis=-1)
        inputs = zip(self.groups, sources, values, strict=True)
        heads = [group(source, value, masked_M, mask_L, rows) for group, source, value in inputs]
        return self.output(jnp.concatenate(heads, axis=-1))


class GraphTrigram(struct.PyTreeNode):
    """MobileBERT's trigram embedding, (L,E) -> (L,D): linear, on [next, this, previous token], kernel (3·E,D)."""

    dense: Affine
    mask_padding: bool = struct.field(pytree_node=False)

    def __call__(self, x_LE: jax.Array, mask_L: jax.Array) -> jax.Array:
        x_LE = _zeroed(x_LE, mask_L, self.mask_padding)
        padded = jnp.pad(x_LE, ((1, 1), (0, 0)))
        return self.dense(jnp.concatenate([padded[2:], x_LE, padded[:-2]], axis=-1))


class GraphEmbedding(struct.PyTreeNode):
    """Sum of word, position and token-type embeddings: ids, types and mask, each (L), -> (L,E).

    transformation: maps the word embeddings to (L,D); position and token-type tables and the result are then D wide.
    """

    word: Array
    position: Array | None
    token_type: Array | None
    transformation: GraphTrigram | None
    norm: Layer | None

    def __call__(self, ids_L: jax.Array, types_L: jax.Array | None, mask_L: jax.Array) -> jax.Array:
        x_LE = lookup(ids_L, self.word)
        if self.transformation is not None:
            x_LE = self.transformation(x_LE, mask_L)
        if self.position is not None:
            x_LE = x_LE + self.position[: len(ids_L)]
        if self.token_type is not None:
            assert types_L is not None
            x_LE = x_LE + lookup(types_L, self.token_type)
        return _apply(self.norm, x_LE)


class GraphLayer(struct.PyTreeNode, kw_only=True):
    """Transformer layer like nn.Layer, nn.PreNormLayer or nn.BottleneckLayer, (L,D) -> (R,D).

    bottleneck, output: maps from D to the layer's inner width I and back; without them, I is D.
    attention_norm, feed_forward_norm: norms before the attention and the feed-forward (ModernBERT).
    attention_sum, feed_forward_sums, output_sum: residual connections, with the norms after them if there are any.
    inside: whether values are computed from the output of `bottleneck` instead of the layer's input.
    shared: input of queries and keys; None for that of the values.
    first: compute only the first token (R = 1); else, R = L.
    """

    bottleneck: Layer | None = None
    attention_norm: Layer | None = None
    shared: Layer | None = None
    attention: Attention | GroupedAttention
    attention_sum: Any = Residual()
    feed_forward_norm: Layer | None = None
    feed_forwards: tuple[Layer, ...]
    feed_forward_sums: tuple[Any, ...] = (Residual(),)
    output: Layer | None = None
    output_sum: Any = Residual()
    output_norm: Layer | None = None
    inside: bool = struct.field(pytree_node=False, default=False)
    first: bool = struct.field(pytree_node=False, default=False)

    def __call__(self, x_LD: jax.Array, masked_M: jax.Array, mask_L: jax.Array) -> jax.Array:
        rows = 1 if self.first else len(x_LD)
        b_LI = _apply(self.bottleneck, x_LD if self.inside else x_LD[:rows])
        values = _apply(self.attention_norm, b_LI if self.inside else x_LD)
        source = values if self.shared is None else self.shared(x_LD)
        attended_RI = self.attention(source, values, masked_M, mask_L, rows)
        b_RI = self.attention_sum.join(b_LI[:rows], attended_RI)
        for feed_forward, residual in zip(self.feed_forwards, self.feed_forward_sums, strict=True):
            b_RI = residual.join(b_RI, feed_forward(_apply(self.feed_forward_norm, b_RI)))
        x_RD = b_RI if self.output is None else self.output_sum.join(x_LD[:rows], self.output(b_RI))
        return _apply(self.output_norm, x_RD)


class Graph(struct.PyTreeNode):
    """A model with its head for one sequence; a call returns the outputs by name.

    projection: maps the embeddings (L,E) to the layers' width, (L,D). pooler: None if the head reads the first token's
    state unpooled. more_inputs: `inputs` of the head's config.
    """

    embedding: GraphEmbedding
    projection: Affine | None
    layers: tuple[GraphLayer, ...]
    pooler: Affine | None
    head: Any
    more_inputs: tuple[str, ...] = struct.field(pytree_node=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, int32 arrays of shape (L), or (P) for `masked_positions`."""
        more = self.more_inputs
        types = () if self.embedding.token_type is None and TYPES not in more else (TYPES,)
        return ("input_ids", *types, "attention_mask", *(name for name in more if name != TYPES))

    def __call__(self, **inputs: jax.Array) -> dict[str, jax.Array]:
        mask_L = inputs["attention_mask"].astype(jnp.float32)
        x_LD = _apply(self.projection, self.embedding(inputs["input_ids"], inputs.get("token_type_ids"), mask_L))
        masked_M = (1.0 - mask_L) * MASKED_SCORE
        for layer in self.layers:
            x_LD = layer(x_LD, masked_M, mask_L)

        def pooled(x_LD: jax.Array) -> jax.Array:
            """Return the pooled state of the first token, (1,D)."""
            return x_LD[:1] if self.pooler is None else jnp.tanh(self.pooler(x_LD[:1]))

        return self.head(x_LD, pooled, mask_L, self.embedding.word, inputs)
