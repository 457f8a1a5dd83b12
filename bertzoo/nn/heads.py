"""Heads: what reads the encoder's last hidden state."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import parameter


def pool(pooler: nn.Module, hidden_BLD: jax.Array) -> jax.Array:
    """(B,L,D) -> (B,D): tanh of a dense map of the first token (BERT §3.1)."""
    return jnp.tanh(pooler(hidden_BLD[:, 0]))


class MaskedHead(nn.Module):
    """Hidden states at P positions -> logits (B,P,V) in float32, tied to the word table (BERT §3.1, Task #1).

    Only the P gathered positions meet the vocabulary: at 20 of 128 tokens that is 6.4 times less work than all.
    """

    dense: nn.Module
    norm: nn.Module
    activation: Callable[[jax.Array], jax.Array]
    vocab_size: int

    @nn.compact
    def __call__(self, hidden_BLD: jax.Array, positions_BP: jax.Array, table_VE: jax.Array) -> jax.Array:
        bias_V = parameter(self, "bias", nn.initializers.zeros, ("vocab",), (self.vocab_size,))
        hidden_BPD = jnp.take_along_axis(hidden_BLD, positions_BP[:, :, None], axis=1)
        z_BPE = self.norm(self.activation(self.dense(hidden_BPD)))
        logits_BPV = jnp.einsum("bpe,ve->bpv", z_BPE, table_VE.astype(z_BPE.dtype), preferred_element_type=jnp.float32)
        return logits_BPV + bias_V


class ReplacedHead(nn.Module):
    """Hidden states (B,L,D) -> logits (B,L) in float32 of whether the token at each position was replaced.

    output(activation(dense(x))) (ELECTRA, Clark et al. 2020, §2: a sigmoid layer; the dense map is its code's).
    """

    dense: nn.Module
    output: nn.Module
    activation: Callable[[jax.Array], jax.Array]

    def __call__(self, hidden_BLD: jax.Array) -> jax.Array:
        return self.output(self.activation(self.dense(hidden_BLD)))[..., 0]
