"""ModernBERT (Warner et al. 2024), https://arxiv.org/abs/2412.13663; Ettin (Weller et al. 2025) has smaller ones."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import flax.linen as nn

from bertzoo.core.errors import ConfigError
from bertzoo.models.attention import AttentionKind, DenseHeads, layers_of
from bertzoo.models.compute import Activation, Compute
from bertzoo.models.parts import FeedForwardSize, LayerFactory, ModelConfig, check_feed_forward, check_sizes
from bertzoo.nn import (
    Bottleneck,
    Dropout,
    Embedding,
    GatedFeedForward,
    MaskedHead,
    PreNormLayer,
    RotaryAttention,
    TruncatedNormal,
)


@dataclass(frozen=True, kw_only=True)
class ModernBert(ModelConfig):
    """Sizes of ModernBERT; the defaults are ModernBERT-base (Table 3).

    Positions are rotations of queries and keys. Every `global_every`-th layer, from the first, sees all tokens; the
    others see `window` // 2 on either side. The pooled output is the first token's state itself.

    Four fields bring the ideas of other papers into these layers: `attention` (SqueezeBERT's groups, ConvBERT's heads),
    `feed_forward_groups` (SqueezeBERT), `bottleneck_size` (MobileBERT) and a list as `feed_forward_size` (schuBERT).
    Convolution heads see as many tokens in every layer. Only grouped convolutions have biases.
    """

    token_types: ClassVar[int] = 0  # only [SEP] marks where the second segment begins

    kind: Literal["modernbert"] = "modernbert"
    vocab_size: int = 50368
    hidden_size: int = 768
    layers: int = 22
    heads: int = 12
    # width of each half of the gated feed-forward; one for all layers, or a list with one per layer
    feed_forward_size: FeedForwardSize = 1152
    feed_forward_groups: int = 1  # groups of the feed-forward's projections; 1 in the paper
    # width inside a layer, a multiple of heads; "none", as in the paper: hidden_size
    bottleneck_size: int | None = None
    attention: AttentionKind = field(default_factory=DenseHeads)  # dense in the paper; queries and keys are rotated
    max_positions: int = 8192
    global_every: int = 3  # layers from one that sees all tokens to the next
    window: int = 128  # tokens that the other layers see, half of them on either side
    global_theta: float = 160000.0  # base of the rotations in layers that see all tokens
    local_theta: float = 10000.0  # and in the others
    activation: Activation = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        check_sizes(self)
        name = "hidden_size" if self.bottleneck_size is None else "bottleneck_size"
        self.attention.check(name, self._width, self._width, self.heads)
        check_feed_forward(self, name, self._width, feed_forward_groups=self.feed_forward_groups)
        if self._width // self.heads % 2:
            raise ConfigError(
                f"heads = {self.heads} of {name} = {self._width} have {self._width // self.heads} "
                "features, an odd number, which rotations cannot pair. Change one of the two."
            )
        for key in ("kernel_size", "stride") if self.attention.kind == "grouped" else ():
            if (value := getattr(self.attention, key)) > 1:
                raise ConfigError(
                    f"attention.{key} = {value} is not supported where keys are rotated. Use attention.{key} = 1."
                )

    @property
    def _width(self) -> int:
        return self.bottleneck_size or self.hidden_size

    @property
    def padding_seen(self) -> int:
        """Number of padding tokens that affect a row's last token through all convolutions."""
        return self.layers * getattr(self.attention, "padding_seen", 0)

    @property
    def head_activation(self) -> str:
        return self.activation

    def factory(self, compute: Compute) -> LayerFactory:
        return super().factory(compute)._replace(biases=False)

    def embedding(self, make: LayerFactory) -> Embedding:
        """Build the embedding without positions."""
        return super().embedding(make).clone(position=None)

    def layer(self, make: LayerFactory, number: int, size: int) -> PreNormLayer:
        """Build a layer with norms before its sublayers; the last one ends with the final norm."""
        is_global, bottleneck, output = number % self.global_every == 0, None, None
        if self.bottleneck_size is not None:
            bottleneck = Bottleneck(dense=make.dense(self._width, "model", "bottleneck"), norm=make.norm())
            output = self._narrow(make.dense(self.hidden_size, "bottleneck", "model"))
        unrotated: Any = self.attention.build(make, self._width, self.heads, self.attention_dropout)
        attention = RotaryAttention(
            **layers_of(unrotated) | {"output": self._narrow(unrotated.output)},
            theta=self.global_theta if is_global else self.local_theta,
            reach=None if is_global else self.window // 2,
            convolution=unrotated.convolution,
        )
        ungated = make.feed_forward(self._width, size, self.activation, self.feed_forward_groups)
        feed_forward = GatedFeedForward(
            intermediate=ungated.intermediate,
            gate=ungated.intermediate.clone(),
            output=self._narrow(ungated.output),
            activation=ungated.activation,
            dropout=Dropout(self.dropout),
        )
        return make.recomputed(PreNormLayer)(
            attention_norm=make.norm() if number and bottleneck is None else None,  # a norm comes just before
            attention=attention,
            feed_forward_norm=make.norm(),
            feed_forward=feed_forward,
            output_norm=make.norm() if number == self.layers - 1 else None,
            bottleneck=bottleneck,
            output=output,
        )

    def masked_head(self, compute: Compute) -> MaskedHead:
        """Build the masked-LM head, tied to the word embeddings, whose only biases are those of the tokens."""
        head = self.factory(compute).masked_head(self.vocab_size, self.hidden_size, self.activation)
        return head.clone(dense=self._narrow(head.dense))

    def hidden_layer(self, compute: Compute) -> tuple[nn.Module, nn.Module]:
        make = self.factory(compute)
        return self._narrow(make.dense(self.hidden_size, "model", "pooled")), make.norm("pooled")

    def _narrow(self, layer: Any) -> Any:
        """Return the layer with the smaller initial weights of those that write to the residual stream."""
        return layer.clone(kernel_init=TruncatedNormal(self.initializer_range / (2 * self.layers) ** 0.5))
