"""Output heads, which read the encoder's last hidden state."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import parameter
from bertzoo.nn.products import batched_product


class Untied(nn.Module):
    """Output layer (B,P,I) -> float32 logits (B,P,V), not tied to the word embeddings: kernel (I,V), no bias."""

    features: int
    kernel_init: Callable

    @nn.compact
    def __call__(self, z_BPI: jax.Array) -> jax.Array:
        shape = z_BPI.shape[-1], self.features
        kernel_IV = parameter(self, "kernel", self.kernel_init, ("embed", "vocab"), shape)
        return batched_product("bpi,iv->bpv", z_BPI, kernel_IV, jnp.float32)


class MaskedHead(nn.Module):
    """Map hidden states (B,P,D) to float32 logits (B,P,V), tied to the word embeddings (BERT §3.1, Task #1).

    If `dense` is wider than the word embeddings, `extra` projects the features beyond their width (MobileBERT).
    """

    dense: nn.Module
    norm: nn.Module
    activation: Callable[[jax.Array], jax.Array]
    vocab_size: int
    extra: nn.Module | None = None

    @nn.compact
    def __call__(self, hidden_BPD: jax.Array, table_VE: jax.Array) -> jax.Array:
        bias_V = parameter(self, "bias", nn.initializers.zeros, ("vocab",), (self.vocab_size,))
        z_BPE = self.norm(self.activation(self.dense(hidden_BPD)))
        rest = bias_V
        if self.extra is not None:
            z_BPE, beyond_BPI = jnp.split(z_BPE, [table_VE.shape[1]], axis=-1)
            rest = rest + self.extra(beyond_BPI)
        logits_BPV = batched_product("bpe,ve->bpv", z_BPE, table_VE, jnp.float32)
        return logits_BPV + rest


class ReplacedHead(nn.Module):
    """Map (B,L,D) to float32 logits (B,L), above 0 for replaced tokens; the dense layer is from ELECTRA's code."""

    dense: nn.Module
    output: nn.Module
    activation: Callable[[jax.Array], jax.Array]

    def __call__(self, hidden_BLD: jax.Array) -> jax.Array:
        return self.output(self.activation(self.dense(hidden_BLD)))[..., 0]


class ClassificationHead(nn.Module):
    """A classifier (..., D) -> float32 logits (..., C) of C classes: output(dropout(x)).

    With `dense`, x becomes activation(dense(input_dropout(x))), as in Hugging Face's ELECTRA and DistilBERT, and with
    `norm` its norm, as in ModernBERT.
    """

    dense: nn.Module | None
    activation: Callable[[jax.Array], jax.Array]
    input_dropout: nn.Module
    output: nn.Module
    dropout: nn.Module
    norm: nn.Module | None = None

    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        if self.dense is not None:
            x = self.activation(self.dense(self.input_dropout(x, train)))
        if self.norm is not None:
            x = self.norm(x)
        return self.output(self.dropout(x, train)).astype(jnp.float32)
