"""The sum of word, position and token type embeddings."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import parameter
from bertzoo.nn.products import product


class Table(nn.Module):
    """An embedding table: ids (...) -> (..., E), from the float32 parameter `embedding` (rows, E)."""

    rows: int
    features: int
    axes: tuple[str, str]
    init: Callable

    def setup(self):
        self.embedding = parameter(self, "embedding", self.init, self.axes, (self.rows, self.features))

    def __call__(self, ids: jax.Array) -> jax.Array:
        return self.embedding[ids]


class Trigram(nn.Module):
    """A linear layer on each token and its two neighbours (MobileBERT §3.4): (B,L,E), mask (B,L) -> (B,L,D).

    The kernel (3,E,D) is ordered next token, token, previous token. Neighbours outside the row are 0; with
    `mask_padding`, padding tokens are 0 too.
    """

    features: int
    kernel_init: Callable
    dtype: jnp.dtype
    mask_padding: bool

    @nn.compact
    def __call__(self, x_BLE: jax.Array, mask_BL: jax.Array) -> jax.Array:
        shape = 3, x_BLE.shape[-1], self.features
        kernel = parameter(self, "kernel", self.kernel_init, ("window", "embed", "model"), shape)
        bias = parameter(self, "bias", nn.initializers.zeros, ("model",), (self.features,))
        if self.mask_padding:
            x_BLE = x_BLE * mask_BL[:, :, None].astype(x_BLE.dtype)
        x_BLE = x_BLE.astype(self.dtype)
        next_BLE = jnp.pad(x_BLE[:, 1:], ((0, 0), (0, 1), (0, 0)))
        previous_BLE = jnp.pad(x_BLE[:, :-1], ((0, 0), (1, 0), (0, 0)))
        x_BLX = jnp.concatenate([next_BLE, x_BLE, previous_BLE], axis=-1)
        return product(x_BLX, kernel) + bias.astype(self.dtype)


class Embedding(nn.Module):
    """Map ids, token types and mask, (B,L) each, to dropout(norm(word + position + token type)) (B,L,E) (BERT §3).

    Without `token_type` (DistilBERT), token types are ignored; without `position` (ModernBERT), positions.
    `transformation`, if any, maps word embeddings (B,L,E) and the mask to the width of the other two before the sum
    (MobileBERT).
    """

    word: nn.Module
    position: nn.Module | None
    token_type: nn.Module | None
    norm: nn.Module
    dropout: nn.Module
    transformation: nn.Module | None = None

    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, train: bool
    ) -> jax.Array:
        x_BLE = self.word(input_ids)
        if self.transformation is not None:
            x_BLE = self.transformation(x_BLE, attention_mask)
        if self.position is not None:
            x_BLE = x_BLE + self.position(jnp.arange(input_ids.shape[1]))
        if self.token_type is not None:
            x_BLE = x_BLE + self.token_type(token_type_ids)
        return self.dropout(self.norm(x_BLE), train)
