"""The export graph, without a batch axis: embedding, layers and head."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from bertzoo.export.graph.attention import Attention
from bertzoo.export.graph.layers import Affine, Array, Map, Residual, lookup
from bertzoo.heads.base import TYPES
from bertzoo.nn.attention import MASKED_SCORE


class GraphTrigram(struct.PyTreeNode):
    """MobileBERT's trigram embedding, (L,E) -> (L,D): a dense map of [next, this, previous token], kernel (3·E,D)."""

    dense: Affine
    mask_padding: bool = struct.field(pytree_node=False)

    def __call__(self, x_LE: jax.Array, mask_L: jax.Array) -> jax.Array:
        if self.mask_padding:
            x_LE = x_LE * mask_L[:, None]
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
    norm: Map | None

    def __call__(self, ids_L: jax.Array, types_L: jax.Array | None, mask_L: jax.Array) -> jax.Array:
        x_LE = lookup(ids_L, self.word)
        if self.transformation is not None:
            x_LE = self.transformation(x_LE, mask_L)
        if self.position is not None:
            x_LE = x_LE + self.position[: len(ids_L)]
        if self.token_type is not None:
            assert types_L is not None
            x_LE = x_LE + lookup(types_L, self.token_type)
        return x_LE if self.norm is None else self.norm(x_LE)


class GraphLayer(struct.PyTreeNode):
    """Transformer layer like nn.Layer, (L,D) -> (R,D). first: compute only the first token (R = 1); else, R = L."""

    attention: Attention
    attention_norm: Any
    feed_forward: Map
    feed_forward_norm: Any
    first: bool = struct.field(pytree_node=False, default=False)

    def __call__(self, x_LD: jax.Array, masked_M: jax.Array, mask_L: jax.Array) -> jax.Array:
        rows = 1 if self.first else len(x_LD)
        attended_RD = self.attention(x_LD, x_LD, masked_M, mask_L, rows)
        x_RD = self.attention_norm.join(x_LD[:rows], attended_RD)
        return self.feed_forward_norm.join(x_RD, self.feed_forward(x_RD))


class GraphPreNormLayer(struct.PyTreeNode):
    """ModernBERT layer like nn.PreNormLayer, (L,D) -> (R,D), with R as in GraphLayer.

    Without `bottleneck` and `output`, the layer's inner width I is D.
    """

    attention_norm: Any
    attention: Attention
    feed_forward_norm: Any
    feed_forward: Map
    output_norm: Any
    attention_sum: Any = Residual()
    feed_forward_sum: Any = Residual()
    bottleneck: Map | None = None
    output: Map | None = None
    output_sum: Any = Residual()
    first: bool = struct.field(pytree_node=False, default=False)

    def __call__(self, x_LD: jax.Array, masked_M: jax.Array, mask_L: jax.Array) -> jax.Array:
        rows = 1 if self.first else len(x_LD)
        b_LI = x_LD if self.bottleneck is None else self.bottleneck(x_LD)
        normed_LI = b_LI if self.attention_norm is None else self.attention_norm(b_LI)
        b_RI = self.attention_sum.join(b_LI[:rows], self.attention(normed_LI, normed_LI, masked_M, mask_L, rows))
        b_RI = self.feed_forward_sum.join(b_RI, self.feed_forward(self.feed_forward_norm(b_RI)))
        x_RD = b_RI if self.output is None else self.output_sum.join(x_LD[:rows], self.output(b_RI))
        return x_RD if self.output_norm is None else self.output_norm(x_RD)


class GraphBottleneckLayer(struct.PyTreeNode):
    """MobileBERT layer like nn.BottleneckLayer, (L,D) -> (R,D), with R as in GraphLayer.

    Values are computed from the output of `bottleneck` if `inside` is set, else from the layer's input. Queries and
    keys are computed from the output of `shared` or, if it is None, from the same array as the values.
    """

    bottleneck: Map
    shared: Map | None
    attention: Attention
    attention_norm: Any
    feed_forwards: tuple[Map, ...]
    feed_forward_norms: tuple[Any, ...]
    output: Map
    output_norm: Any
    inside: bool = struct.field(pytree_node=False)
    first: bool = struct.field(pytree_node=False, default=False)

    def __call__(self, x_LD: jax.Array, masked_M: jax.Array, mask_L: jax.Array) -> jax.Array:
        rows = 1 if self.first else len(x_LD)
        b_LI = self.bottleneck(x_LD if self.inside else x_LD[:rows])
        values = b_LI if self.inside else x_LD
        source = values if self.shared is None else self.shared(x_LD)
        attended_RI = self.attention(source, values, masked_M, mask_L, rows)
        b_RI = self.attention_norm.join(b_LI[:rows], attended_RI)
        for feed_forward, norm in zip(self.feed_forwards, self.feed_forward_norms, strict=True):
            b_RI = norm.join(b_RI, feed_forward(b_RI))
        return self.output_norm.join(x_LD[:rows], self.output(b_RI))


AnyGraphLayer = GraphLayer | GraphPreNormLayer | GraphBottleneckLayer


class Graph(struct.PyTreeNode):
    """A model with its head for one row of tokens; a call returns the outputs by name.

    projection: maps the embeddings (L,E) to the layers' width, (L,D). pooler: None if the head reads the first token's
    state unpooled.
    """

    embedding: GraphEmbedding
    projection: Affine | None
    layers: tuple[AnyGraphLayer, ...]
    pooler: Affine | None
    head: Any

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, int32 arrays of shape (L), or (P) for `masked_positions`."""
        more = self.head.more_inputs
        types = () if self.embedding.token_type is None and TYPES not in more else (TYPES,)
        return ("input_ids", *types, "attention_mask", *(name for name in more if name != TYPES))

    def __call__(self, **inputs: jax.Array) -> dict[str, jax.Array]:
        mask_L = inputs["attention_mask"].astype(jnp.float32)
        x_LD = self.embedding(inputs["input_ids"], inputs.get("token_type_ids"), mask_L)
        if self.projection is not None:
            x_LD = self.projection(x_LD)
        masked_M = (1.0 - mask_L) * MASKED_SCORE
        for layer in self.layers:
            x_LD = layer(x_LD, masked_M, mask_L)
        return self.head(x_LD, self._pooled, mask_L, self.embedding.word, inputs)

    def _pooled(self, x_LD: jax.Array) -> jax.Array:
        """Return the pooled state of the first token, (1,D)."""
        return x_LD[:1] if self.pooler is None else jnp.tanh(self.pooler(x_LD[:1]))
