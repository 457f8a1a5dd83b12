"""ConvBERT (Jiang et al. 2020), https://arxiv.org/abs/2008.02496: half of the attention heads become convolutions."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

from bertzoo.core.errors import ConfigError
from bertzoo.models.attention import Convolution, MixedHeads
from bertzoo.models.compute import Activation
from bertzoo.models.parts import FeedForwardSize, LayerFactory, ModelConfig, check_feed_forward, check_sizes
from bertzoo.nn import Layer


@dataclass(frozen=True, kw_only=True)
class ConvBert(ModelConfig):
    """Sizes of a ConvBERT discriminator or generator; the defaults are ConvBERT-small's discriminator (§4.1).

    The pooled output is the first token's state itself.
    """

    kind: Literal["convbert"] = "convbert"
    vocab_size: int = 30522
    embedding_size: int = 128
    hidden_size: int = 256
    layers: int = 12
    heads: int = 4  # attention heads of a layer before division by head_ratio
    head_ratio: int = MixedHeads.head_ratio  # heads / head_ratio heads attend, and as many convolve
    # input that determines a kernel: the span around a token (§3.3), the token alone (dynamic), or nothing (fixed);
    # none: no heads convolve
    convolution: Convolution = MixedHeads.convolution
    kernel_size: int = MixedHeads.kernel_size  # tokens that a kernel covers
    # zero the padding before every convolution, so that it cannot leak into tokens; the released models do not
    mask_padding: bool = MixedHeads.mask_padding
    # width inside the feed-forward; one for all layers, or a list with one per layer
    feed_forward_size: FeedForwardSize = 1024
    feed_forward_groups: int = 1  # groups of the feed-forward's two projections
    max_positions: int = 512
    token_types: int = 2
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-12

    def __post_init__(self):
        check_sizes(self)
        self._attention.check("hidden_size", self.hidden_size, self.hidden_size, self.heads)
        check_feed_forward(self, "hidden_size", self.hidden_size, feed_forward_groups=self.feed_forward_groups)

    @property
    def padding_seen(self) -> int:
        """Number of padding tokens that affect a row's last token through the convolutions of all layers."""
        return self.layers * self._attention.padding_seen

    def generator(self, width: float) -> "ConvBert":
        """Return the config of a generator `width` times as wide as this model, for replaced token detection.

        As in the official code, it has `width` times as many heads, but at least 1, and feed_forward_size = 4 ·
        hidden_size. Raises ConfigError if these sizes do not fit together.
        """
        hidden_size, heads = round(width * self.hidden_size), max(1, round(width * self.heads))
        try:
            return dataclasses.replace(self, hidden_size=hidden_size, heads=heads, feed_forward_size=4 * hidden_size)
        except ConfigError as error:
            raise ConfigError(
                f"a generator {width} times as wide as the discriminator cannot be built: {error}"
            ) from error

    def layer(self, make: LayerFactory, number: int, size: int) -> Layer:
        return make.layer(
            self._attention.build(make, self.hidden_size, self.heads, self.attention_dropout),
            make.feed_forward(self.hidden_size, size, self.activation, self.feed_forward_groups),
            self.dropout,
        )

    @property
    def _attention(self) -> MixedHeads:
        return MixedHeads(
            head_ratio=self.head_ratio,
            convolution=self.convolution,
            kernel_size=self.kernel_size,
            mask_padding=self.mask_padding,
        )
