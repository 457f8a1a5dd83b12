"""The post-norm Transformer encoder and its layers: BERT's, and those of MobileBERT and IB-BERT with a bottleneck."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax

from bertzoo.nn.positions import take_tokens

Sources = tuple[jax.Array, jax.Array]  # the input of queries and keys, then the input of values


class FeedForward(nn.Module):
    """A feed-forward block (B,L,D) -> (B,L,D): output(activation(intermediate(x)))."""

    intermediate: nn.Module
    output: nn.Module
    activation: Callable[[jax.Array], jax.Array]

    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        return self.output(self.activation(self.intermediate(x_BLD)))


class Layer(nn.Module):
    """A post-norm layer: x (B,L,D), mask (B,L) -> (B,L,D) and the attention probabilities (B,H,L,L).

    x = norm(x + dropout(attention(x))); x = norm(x + dropout(feed_forward(x))).
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
    set of parameters, named after its first index (ALBERT §3.1). `positions_BR` acts in the last layer.
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
        if not self.layers:
            hidden_states[-1] = take_tokens(x_BLD, positions_BR)
        return EncoderOutput(tuple(hidden_states), tuple(attentions))


def from_stream(x_BLD: jax.Array, b_BLI: jax.Array) -> Sources:
    """Return the layer's input x twice: for queries and keys, and for values (IB-BERT; MobileBERT Table 1)."""
    return x_BLD, x_BLD


def from_bottleneck(x_BLD: jax.Array, b_BLI: jax.Array) -> Sources:
    """Return b, the narrowed input, twice: for queries and keys, and for values (MobileBERT-tiny)."""
    return b_BLI, b_BLI


class Bottleneck(nn.Module):
    """Narrow the layer's input from width D to I: (B,L,D) -> (B,L,I), norm(dense(x))."""

    dense: nn.Module
    norm: nn.Module

    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        return self.norm(self.dense(x_BLD))


class SharedBottleneck(Bottleneck):
    """Return (norm(dense(x)), x): a narrowed x for queries and keys, and x for values (MobileBERT's code)."""

    def __call__(self, x_BLD: jax.Array, b_BLI: jax.Array) -> Sources:
        return self.norm(self.dense(x_BLD)), x_BLD


class BottleneckLayer(nn.Module):
    """Map x (B,L,D) and mask (B,L) to (B,L,D) and the attention probabilities (B,H,L,L) (MobileBERT Figure 1).

    b = bottleneck(x); b = attention_norm(b + attention(attention_input(x, b))); for every feed-forward b = norm(b +
    feed_forward(b)); x = output_norm(x + dropout(output(b))). `attention` maps its input, of width D or I, to width I.
    If queries and values have different inputs, the values' input is one more argument of `attention`.
    """

    bottleneck: nn.Module
    attention_input: Callable[[jax.Array, jax.Array], Sources]  # of the layer's input and its bottleneck
    attention: nn.Module
    attention_norm: nn.Module
    feed_forward: Sequence[nn.Module]
    feed_forward_norm: Sequence[nn.Module]
    output: nn.Module
    output_norm: nn.Module
    dropout: nn.Module

    def __call__(
        self, x_BLD: jax.Array, mask_BL: jax.Array, train: bool, positions_BR: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        b_BLI = self.bottleneck(x_BLD)
        source, values = self.attention_input(x_BLD, b_BLI)
        more = () if values is source else (values,)
        positions = {} if positions_BR is None else {"positions_BR": positions_BR}
        attended_BLI, probabilities_BHLM = self.attention(source, mask_BL, train, *more, **positions)
        b_BLI = self.attention_norm(take_tokens(b_BLI, positions_BR) + attended_BLI)
        for feed_forward, norm in zip(self.feed_forward, self.feed_forward_norm, strict=True):
            b_BLI = norm(b_BLI + feed_forward(b_BLI))
        x_BLD = take_tokens(x_BLD, positions_BR)
        return self.output_norm(x_BLD + self.dropout(self.output(b_BLI), train)), probabilities_BHLM
