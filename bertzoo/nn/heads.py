"""Output heads, which read the encoder's last hidden state."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import parameter
from bertzoo.nn.positions import take_tokens
from bertzoo.nn.products import batched_product

EXCLUDED = -1000.0  # added to the logits of positions that cannot hold an answer
SPARE = -1e9  # logit of a padding row of the word table (MaskedHead): finite, and its exp is 0


def pool(pooler: nn.Module, hidden_BLD: jax.Array) -> jax.Array:
    """Return tanh(pooler(h)), where h is the first token's state: (B,L,D) -> (B,D) (BERT §3.1)."""
    return jnp.tanh(pooler(hidden_BLD[:, 0]))


class Untied(nn.Module):
    """An output layer (B,P,I) -> float32 logits (B,P,V) that is not tied to the word table: kernel (I,V), no bias."""

    features: int
    kernel_init: Callable

    @nn.compact
    def __call__(self, z_BPI: jax.Array) -> jax.Array:
        shape = z_BPI.shape[-1], self.features
        kernel_IV = parameter(self, "kernel", self.kernel_init, ("embed", "vocab"), shape)
        return batched_product("bpi,iv->bpv", z_BPI, kernel_IV, jnp.float32)


class MaskedHead(nn.Module):
    """Map hidden states at P positions to float32 logits (B,P,V), tied to the word table (BERT §3.1, Task #1).

    Without positions, the hidden states are those of the P tokens alone, (B,P,D).

    Only the P gathered positions are multiplied by the table: 20 of 128 tokens are 6.4 times less work than all. If the
    dense map is wider than the table, `extra` maps the features beyond the table's width (MobileBERT). Table rows from
    `vocab_size` to `rows` (V) are padding: their logits are so low that their probability is 0.
    """

    dense: nn.Module
    norm: nn.Module
    activation: Callable[[jax.Array], jax.Array]
    vocab_size: int
    rows: int
    extra: nn.Module | None = None

    @nn.compact
    def __call__(self, hidden_BLD: jax.Array, positions_BP: jax.Array | None, table_VE: jax.Array) -> jax.Array:
        bias_V = parameter(self, "bias", nn.initializers.zeros, ("vocab",), (self.rows,))
        hidden_BPD = take_tokens(hidden_BLD, positions_BP)
        z_BPE = self.norm(self.activation(self.dense(hidden_BPD)))
        rest = bias_V
        if self.extra is not None:
            z_BPE, beyond_BPI = jnp.split(z_BPE, [table_VE.shape[1]], axis=-1)
            rest = rest + self.extra(beyond_BPI)
        logits_BPV = batched_product("bpe,ve->bpv", z_BPE, table_VE, jnp.float32)
        logits_BPV = logits_BPV + rest
        if self.rows > self.vocab_size:
            logits_BPV = jnp.where(jnp.arange(self.rows) < self.vocab_size, logits_BPV, SPARE)
        return logits_BPV


class ReplacedHead(nn.Module):
    """Map hidden states (B,L,D) to logits (B,L) in float32; above 0 for tokens predicted as replaced.

    output(activation(dense(x))), as in ELECTRA's code; the paper has no dense map (Clark et al. 2020, §2).
    """

    dense: nn.Module
    output: nn.Module
    activation: Callable[[jax.Array], jax.Array]

    def __call__(self, hidden_BLD: jax.Array) -> jax.Array:
        return self.output(self.activation(self.dense(hidden_BLD)))[..., 0]


class ClassificationHead(nn.Module):
    """A classifier (..., D) -> float32 logits (..., C) of C classes: output(dropout(x)).

    With `dense`, x becomes activation(dense(input_dropout(x))), as in Hugging Face's ELECTRA and DistilBERT.
    """

    dense: nn.Module | None
    activation: Callable[[jax.Array], jax.Array]
    input_dropout: nn.Module
    output: nn.Module
    dropout: nn.Module

    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        if self.dense is not None:
            x = self.activation(self.dense(self.input_dropout(x, train)))
        return self.output(self.dropout(x, train)).astype(jnp.float32)


class PairHead(nn.Module):
    """Compute a float32 logit of each pair of states x and y: output(activation(dense(x, y))).

    x and y have shape (..., D), and their leading axes broadcast to the shape of the logits. dense: a DensePair.
    """

    dense: nn.Module
    activation: Callable[[jax.Array], jax.Array]
    output: nn.Module

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return self.output(self.activation(self.dense(x, y))).astype(jnp.float32)[..., 0]


class JointSpans(NamedTuple):
    """Logits of an answer's start (B,L), of its end given each of K `starts` (B,K,L), and of no answer (B,).

    `null_logits` above 0 mean no answer. 1000 is subtracted from the logits of positions that cannot hold an answer.
    """

    start_logits: jax.Array
    starts: jax.Array
    end_logits: jax.Array
    null_logits: jax.Array


class JointSpanHead(nn.Module):
    """Predict starts of answers, ends given a start, and "no answer" (ELECTRA's qa_tasks.py; not in the paper).

    h_t is the last state of token t. `start` maps h_t to a logit, `end` maps h_start and h_t, and `null` maps h_[CLS]
    and the mean of h_t weighted by softmax(start logits). Answers lie in the second segment, or are [CLS].
    """

    start: nn.Module
    end: nn.Module
    null: nn.Module
    beam: int

    def __call__(self, hidden_BLD: jax.Array, second_BL: jax.Array, starts_BK: jax.Array | None) -> JointSpans:
        """Return the logits of starts, ends and no answer.

        second_BL: 1 at tokens of the second segment. starts_BK: start positions, by default the `beam` likeliest.
        """
        length = hidden_BLD.shape[1]
        excluded_BL = EXCLUDED * (1.0 - jnp.maximum(second_BL, jnp.arange(length) == 0).astype(jnp.float32))
        start_BL = self.start(hidden_BLD)[..., 0].astype(jnp.float32) + excluded_BL
        if starts_BK is None:
            _, starts_BK = jax.lax.top_k(start_BL, min(self.beam, length))
        first_BKD = take_tokens(hidden_BLD, starts_BK)
        end_BKL = self.end(first_BKD[:, :, None], hidden_BLD[:, None]) + excluded_BL[:, None]
        expected_BD = jnp.einsum("bl,bld->bd", jax.nn.softmax(start_BL), hidden_BLD.astype(jnp.float32))
        null_B = self.null(hidden_BLD[:, 0].astype(jnp.float32), expected_BD)
        return JointSpans(start_BL, starts_BK, end_BKL, null_B)


def span_candidates(
    start_BL: jax.Array, starts_BK: jax.Array, end_BKL: jax.Array, null_B: jax.Array
) -> dict[str, jax.Array]:
    """Return candidate answers, as named arrays, from the logits of a JointSpanHead.

    `starts` (B,K) have log-probabilities `start_scores`. The K likeliest `ends` of each start (B,K,K) have
    log-probabilities `end_scores`. `null_score` (B,) is above 0 for no answer.
    """
    scores_BL = jax.nn.log_softmax(start_BL)
    end_scores_BKK, ends_BKK = jax.lax.top_k(jax.nn.log_softmax(end_BKL), starts_BK.shape[1])
    return {
        "starts": starts_BK,
        "start_scores": jnp.take_along_axis(scores_BL, starts_BK, axis=1),
        "ends": ends_BKK,
        "end_scores": end_scores_BKK,
        "null_score": null_B,
    }
