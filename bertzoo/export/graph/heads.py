"""Heads of the export graph: each maps the last layer's states (R,D), for R computed tokens, to outputs by name.

Every head has `more_inputs`, the names of its inputs besides ids and mask, and `reads_first`, whether it reads only
the first token's state.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from bertzoo.export.graph.layers import Affine, Array, Map
from bertzoo.nn.heads import EXCLUDED

TYPES = "token_type_ids"

Pooled = Callable[[jax.Array], jax.Array]
Inputs = Mapping[str, jax.Array]


class Logits(struct.PyTreeNode):
    """Head with the output `logits`: output(activation(dense(x))), or output(x) without `dense`.

    of: "first" gives logits (C) of the pooled first token, "tokens" gives C logits for each token (L,C), "token" gives
    one logit for each token (L).
    """

    dense: Affine | None
    output: Affine
    activation: Callable | None = struct.field(pytree_node=False)
    of: str = struct.field(pytree_node=False)

    more_inputs: ClassVar[tuple[str, ...]] = ()

    @property
    def reads_first(self) -> bool:
        return self.of == "first"

    def __call__(
        self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Array, inputs: Inputs
    ) -> dict[str, jax.Array]:
        x = pooled(x_RD) if self.of == "first" else x_RD
        if self.dense is not None and self.activation is not None:
            x = self.activation(self.dense(x))
        y = self.output(x)
        return {"logits": {"first": y.reshape(-1), "token": y.reshape(-1), "tokens": y}[self.of]}


class SpanLogits(struct.PyTreeNode):
    """Head with the outputs `start_logits` and `end_logits`, (L) each."""

    output: Affine

    more_inputs: ClassVar[tuple[str, ...]] = ()
    reads_first: ClassVar[bool] = False

    def __call__(
        self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Array, inputs: Inputs
    ) -> dict[str, jax.Array]:
        logits_LC = self.output(x_RD)
        return {"start_logits": logits_LC[:, 0], "end_logits": logits_LC[:, 1]}


class Pair(struct.PyTreeNode):
    """Map states x (K,1,D) of K tokens and y (L,D) of L tokens to a logit for each pair of tokens, (K,L).

    A logit is output(activation(dense_x(x) + dense_y(y))). dense_x and dense_y are the two parts of a dense layer on
    [x, y].
    """

    dense_x: Affine
    dense_y: Affine
    output: Affine
    activation: Callable = struct.field(pytree_node=False)

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return self.output(self.activation(self.dense_x(x) + self.dense_y(y)))[..., 0]


class JointSpanLogits(struct.PyTreeNode):
    """ELECTRA's question-answering head, like nn.JointSpanHead.

    Outputs: `start_logits` (L), the K likeliest `starts` (K), `end_logits` (K,L) given each start, `null_logit` (1).
    """

    start: Affine
    end: Pair
    null: Pair
    beam: int = struct.field(pytree_node=False)

    more_inputs: ClassVar[tuple[str, ...]] = (TYPES,)
    reads_first: ClassVar[bool] = False

    def __call__(
        self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Array, inputs: Inputs
    ) -> dict[str, jax.Array]:
        length = len(x_RD)
        types_L = inputs[TYPES].astype(jnp.float32)
        first_L = (jnp.arange(length) == 0).astype(jnp.float32)
        excluded_L = EXCLUDED * (1.0 - jnp.maximum(types_L * mask_L, first_L))
        start_L = self.start(x_RD)[:, 0] + excluded_L
        _, starts_K = jax.lax.top_k(start_L, min(self.beam, length))
        end_KL = self.end(_rows(x_RD, starts_K)[:, None], x_RD) + excluded_L
        expected_D = jax.nn.softmax(start_L) @ x_RD
        null = self.null(x_RD[:1], expected_D[None])
        return {"start_logits": start_L, "starts": starts_K, "end_logits": end_KL, "null_logit": null}


class MaskedLogits(struct.PyTreeNode):
    """Masked-language-model head, whose output weights are the word embeddings.

    Outputs: `masked_logits` (P,V) at `masked_positions` and, with `sentence`, `sentence_logits` (2).
    """

    dense: Affine
    norm: Map
    bias: Array
    extra: Array | None  # (D-E,V), for the columns beyond the word table's width E
    sentence: Affine | None
    activation: Callable = struct.field(pytree_node=False)

    more_inputs: ClassVar[tuple[str, ...]] = ("masked_positions",)
    reads_first: ClassVar[bool] = False

    def __call__(
        self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Array, inputs: Inputs
    ) -> dict[str, jax.Array]:
        z_PE = self.norm(self.activation(self.dense(_rows(x_RD, inputs["masked_positions"]))))
        width = table_VE.shape[1]
        logits_PV = jnp.einsum("pe,ve->pv", z_PE[:, :width], table_VE) + self.bias
        if self.extra is not None:
            logits_PV = logits_PV + z_PE[:, width:] @ self.extra
        logits = {"masked_logits": logits_PV}
        if self.sentence is not None:
            logits["sentence_logits"] = self.sentence(pooled(x_RD))[0]
        return logits


class MeanEmbedding(struct.PyTreeNode):
    """Head with the output `embedding` (D), the mean of the states of all tokens except padding."""

    more_inputs: ClassVar[tuple[str, ...]] = ()
    reads_first: ClassVar[bool] = False

    def __call__(
        self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Array, inputs: Inputs
    ) -> dict[str, jax.Array]:
        return {"embedding": (mask_L[None] @ x_RD)[0] / jnp.sum(mask_L)}


class FirstEmbedding(struct.PyTreeNode):
    """Head with the output `embedding` (D), the pooled state of the first token."""

    more_inputs: ClassVar[tuple[str, ...]] = ()
    reads_first: ClassVar[bool] = True

    def __call__(
        self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Array, inputs: Inputs
    ) -> dict[str, jax.Array]:
        return {"embedding": pooled(x_RD)[0]}


def _rows(x_LD: jax.Array, places_P: jax.Array) -> jax.Array:
    """Gather the rows (P,D) at `places_P` by a product with a one-hot matrix, which every runtime supports."""
    chosen_PL = (places_P[:, None] == jnp.arange(len(x_LD))[None]).astype(x_LD.dtype)
    return chosen_PL @ x_LD


POOLINGS = {"mean": MeanEmbedding(), "first": FirstEmbedding()}
