"""The sum of word, position and token type embeddings."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import parameter


class Table(nn.Module):
    """(...) ids -> (..., E); the float32 table (rows, E) is `embedding`, so that a head can be tied to it."""

    rows: int
    features: int
    axes: tuple[str, str]
    init: Callable

    def setup(self):
        self.embedding = parameter(self, "embedding", self.init, self.axes, (self.rows, self.features))

    def __call__(self, ids: jax.Array) -> jax.Array:
        return self.embedding[ids]


class Embedding(nn.Module):
    """(B,L) ids, token types and mask -> (B,L,E): norm(word + position + token type), then dropout (BERT §3).

    Without a token type table (DistilBERT) the token types are not looked at.
    """

    word: nn.Module
    position: nn.Module
    token_type: nn.Module | None
    norm: nn.Module
    dropout: nn.Module

    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, train: bool
    ) -> jax.Array:
        x_BLE = self.word(input_ids) + self.position(jnp.arange(input_ids.shape[1]))
        if self.token_type is not None:
            x_BLE = x_BLE + self.token_type(token_type_ids)
        return self.dropout(self.norm(x_BLE), train)
