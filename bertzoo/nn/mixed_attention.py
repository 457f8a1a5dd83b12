"""ConvBERT's attention, in which self-attention heads and convolution heads work side by side."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.attention import attend
from bertzoo.nn.dropout import Dropout
from bertzoo.nn.positions import take_tokens


class MixedAttention(nn.Module):
    """Map x (B,L,D) and mask (B,L) to (B,L,D) and the attention heads' probabilities (B,H,L,L) (ConvBERT §3.3).

    `query`, `key`, `value` map (B,L,D) to (B,L,H,K); `convolution` maps (B,L,D), the query and the mask to (B,L,H,K).
    `output` maps both kinds of heads, concatenated to (B,L,2·H,K), to (B,L,D). With `positions_BR`, only the R tokens
    of each row at these positions are computed: (B,R,D) and (B,H,R,L).
    """

    query: nn.Module
    key: nn.Module
    value: nn.Module
    convolution: nn.Module
    output: nn.Module
    dropout: Dropout

    def __call__(
        self, x_BLD: jax.Array, mask_BL: jax.Array, train: bool, positions_BR: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        query_BLHK = self.query(take_tokens(x_BLD, positions_BR))
        key_BMHK, value_BMHJ = self.key(x_BLD), self.value(x_BLD)
        context_BLHJ, probabilities_BHLM = attend(query_BLHK, key_BMHK, value_BMHJ, mask_BL, self.dropout, train)
        convolved_BLHJ = self.convolution(x_BLD, query_BLHK, mask_BL, positions_BR)
        return self.output(jnp.concatenate([context_BLHJ, convolved_BLHJ], axis=2)), probabilities_BHLM
