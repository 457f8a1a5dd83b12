"""The post-norm Transformer encoder, its layers and their feed-forward block."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax

from bertzoo.nn.positions import take_tokens


class FeedForward(nn.Module):
    """A feed-forward block (B,L,D) -> (B,L,D): output(activation(intermediate(x)))."""

    intermediate: nn.Module
    output: nn.Module
    activation: Callable[[jax.Array], jax.Array]

    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        return self.output(self.activation(self.intermediate(x_BLD)))


class Layer(nn.Module):
    """A post-norm layer: x (B,L,D), mask (B,L) -> (B,L,D) and the attention probabilities (B,H,L,L).

    x = norm(x + dropout(attention(x))); x = norm(x + dropout(feed_forward(x))). With `positions_BR`, only the R
    tokens of each row at these positions are computed: (B,R,D) and (B,H,R,L).
    """

    attention: nn.Module
    attention_norm: nn.Module
    feed_forward: nn.Module
    feed_forward_norm: nn.Module
    dropout: nn.Module

    def __call__(
        self, x_BLD: jax.Array, mask_BL: jax.Array, train: bool, positions_BR: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        positions = {} if positions_BR is None else {"positions_BR": positions_BR}
        attended_BLD, probabilities_BHLM = self.attention(x_BLD, mask_BL, train, **positions)
        x_BLD = self.attention_norm(take_tokens(x_BLD, positions_BR) + self.dropout(attended_BLD, train))
        x_BLD = self.feed_forward_norm(x_BLD + self.dropout(self.feed_forward(x_BLD), train))
        return x_BLD, probabilities_BHLM


class EncoderOutput(NamedTuple):
    """Hidden states (B,L,D): the first layer's input and every layer's output; attention probabilities (B,H,L,L)."""

    hidden_states: tuple[jax.Array, ...]
    attentions: tuple[jax.Array, ...]


class Encoder(nn.Module):
    """Apply the layers in turn to x (B,L,E) and return their EncoderOutput; jit drops the states that nothing uses.

    `projection` maps (B,L,E) to (B,L,D) if the widths differ. A layer that occurs more than once in `layers` has one
    set of parameters, named after its first index (ALBERT §3.1). With `positions_BR`, the last layer computes only
    the R tokens of each row at these positions, (B,R,D).
    """

    layers: Sequence[nn.Module]
    projection: nn.Module | None = None

    def __call__(
        self, x_BLE: jax.Array, mask_BL: jax.Array, train: bool, positions_BR: jax.Array | None = None
    ) -> EncoderOutput:
        x_BLD = x_BLE if self.projection is None else self.projection(x_BLE)
        hidden_states, attentions = [x_BLD], []
        for number, layer in enumerate(self.layers, 1):
            more = (positions_BR,) if number == len(self.layers) else ()
            x_BLD, probabilities_BHLM = layer(x_BLD, mask_BL, train, *more)
            hidden_states.append(x_BLD)
            attentions.append(probabilities_BHLM)
        return EncoderOutput(tuple(hidden_states), tuple(attentions))
