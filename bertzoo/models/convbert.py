"""ConvBERT (Jiang et al. 2020), https://arxiv.org/abs/2008.02496: half of the attention heads become convolutions."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import flax.linen as nn

from bertzoo.errors import ConfigError
from bertzoo.models.compute import ACTIVATIONS, Activation, Compute
from bertzoo.models.parts import Backbone, Leaves, check_divides, check_sizes, leaves
from bertzoo.nn import (
    Depthwise,
    Dropout,
    DynamicConvolution,
    Encoder,
    FeedForward,
    FixedConvolution,
    MaskedHead,
    MixedAttention,
    SpanKey,
    keep_padding,
    zero_padding,
)


@dataclass(frozen=True, kw_only=True)
class ConvBert:
    """Sizes of a ConvBERT tower, discriminator or generator; the defaults are ConvBERT-small's discriminator (§4.1).

    Of `heads` heads of hidden_size / heads, heads / head_ratio (at least one) attend, and as many convolve:
    `convolution` says with kernels made from the span around a token (§3.3), from the token alone, with fixed ones, or
    that there are none, which leaves the bottleneck attention. `mask_padding` zeroes padding before every window, so
    that it cannot leak into tokens; the released models were trained without it.
    """

    kind: Literal["convbert"] = "convbert"
    vocab_size: int = 30522
    embedding_size: int = 128
    hidden_size: int = 256
    layers: int = 12
    heads: int = 4
    head_ratio: int = 2
    convolution: Literal["span", "dynamic", "fixed", "none"] = "span"
    kernel_size: int = 9
    mask_padding: bool = True
    feed_forward_size: int = 1024
    feed_forward_groups: int = 1
    max_positions: int = 512
    token_types: int = 2
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-12

    def __post_init__(self):
        check_sizes(self)
        check_divides("hidden_size", self.hidden_size, heads=self.heads, feed_forward_groups=self.feed_forward_groups)
        check_divides("feed_forward_size", self.feed_forward_size, feed_forward_groups=self.feed_forward_groups)
        if self.kernel_size % 2 == 0:
            raise ConfigError(f"kernel_size = {self.kernel_size} is even: a window with the token in its middle is odd")

    def generator(self, width: float) -> "ConvBert":
        """The generator `width` times as wide that replaced token detection trains beside this discriminator.

        As the official code has it: heads shrink with the width, to at least one, and the feed-forward is 4 times it.
        """
        hidden_size, heads = round(width * self.hidden_size), max(1, round(width * self.heads))
        try:
            return dataclasses.replace(self, hidden_size=hidden_size, heads=heads, feed_forward_size=4 * hidden_size)
        except ConfigError as error:
            raise ConfigError(f"a generator {width} times as wide as the discriminator cannot be: {error}") from error

    def backbone(self, compute: Compute) -> Backbone:
        """Embedding, projection where the widths differ, and post-norm layers of mixed attention."""
        make = leaves(compute, self.initializer_range, self.norm_epsilon)
        return Backbone(
            embedding=make.embedding(self, self.embedding_size),
            encoder=Encoder(
                projection=make.projection(self.embedding_size, self.hidden_size),
                layers=tuple(
                    make.layer(self._attention(make), self._feed_forward(make), self.dropout)
                    for _ in range(self.layers)
                ),
            ),
            pooler=None,
        )

    def masked_head(self, compute: Compute) -> MaskedHead:
        """The generator's head, tied to the word table."""
        make = leaves(compute, self.initializer_range, self.norm_epsilon)
        return make.masked_head(self.vocab_size, self.embedding_size, self.activation)

    @property
    def _split(self) -> tuple[int, int]:
        """Heads of each sort, and their size."""
        return max(1, self.heads // self.head_ratio), self.hidden_size // self.heads

    def _attention(self, make: Leaves) -> nn.Module:
        if self.convolution == "none":
            heads, size = self._split
            return make.attention(self.hidden_size, heads, self.attention_dropout, (size, size))
        return MixedAttention(
            query=self._heads(make),
            key=self._heads(make),
            value=self._heads(make),
            convolution=self._convolution(make),
            output=make.dense(self.hidden_size, "heads", "head_size", "model"),
            dropout=Dropout(self.attention_dropout),
        )

    def _heads(self, make: Leaves) -> nn.Module:
        return make.dense(self._split, "model", "heads", "head_size")

    def _depthwise(self, make: Leaves, *axes: str) -> Depthwise:
        # The official code starts these with a standard deviation of 1/W, whatever the rest starts with.
        init = nn.initializers.truncated_normal(1 / self.kernel_size)
        return Depthwise(window=self.kernel_size, axes=axes, kernel_init=init, dtype=make.compute.jax_dtype)

    def _convolution(self, make: Leaves) -> nn.Module:
        before_window = zero_padding if self.mask_padding else keep_padding
        if self.convolution == "fixed":
            depthwise = self._depthwise(make, "heads", "head_size")
            return FixedConvolution(depthwise=depthwise, value=self._heads(make), before_window=before_window)
        span_key = SpanKey(depthwise=self._depthwise(make, "model"), pointwise=self._heads(make))
        return DynamicConvolution(
            span_key=span_key if self.convolution == "span" else None,
            kernel_generator=make.dense((self._split[0], self.kernel_size), "model", "heads", "window"),
            value=self._heads(make),
            before_window=before_window,
        )

    def _feed_forward(self, make: Leaves) -> FeedForward:
        if self.feed_forward_groups == 1:
            return make.feed_forward(self.hidden_size, self.feed_forward_size, self.activation)
        return FeedForward(
            intermediate=make.grouped(self.feed_forward_size, self.feed_forward_groups),
            output=make.grouped(self.hidden_size, self.feed_forward_groups),
            activation=ACTIVATIONS[self.activation],
        )
