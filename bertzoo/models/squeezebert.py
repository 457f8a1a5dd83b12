"""SqueezeBERT (Iandola et al. 2020), https://arxiv.org/abs/2006.11316: BERT with grouped convolutions of window 1."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bertzoo.models.attention import GroupedHeads
from bertzoo.models.compute import ACTIVATIONS, Activation
from bertzoo.models.parts import FeedForwardSize, LayerFactory, ModelConfig, check_feed_forward, check_sizes
from bertzoo.nn import FeedForward, Layer


@dataclass(frozen=True, kw_only=True)
class SqueezeBert(ModelConfig):
    """Sizes of SqueezeBERT; by default the paper's, with 1 group in attention's output projection, else 4."""

    has_pooler: ClassVar[bool] = True

    kind: Literal["squeezebert"] = "squeezebert"
    vocab_size: int = 30528
    hidden_size: int = 768
    layers: int = 12
    heads: int = 12
    # width inside the feed-forward; one for all layers, or a list with one per layer
    feed_forward_size: FeedForwardSize = 3072
    query_groups: int = GroupedHeads.query_groups  # groups of the query projection
    key_groups: int = GroupedHeads.key_groups  # groups of the key projection
    value_groups: int = GroupedHeads.value_groups  # groups of the value projection
    # groups of the projection after the attention (the paper's FFN1)
    attention_output_groups: int = GroupedHeads.output_groups
    kernel_size: int = GroupedHeads.kernel_size  # tokens from which a key and a value are computed; 1 in the paper
    dilation: int = GroupedHeads.dilation  # distance between these tokens
    stride: int = GroupedHeads.stride  # distance between the tokens that have a key and a value
    intermediate_groups: int = 4  # groups of the feed-forward's first projection (FFN2)
    output_groups: int = 4  # groups of the feed-forward's second projection (FFN3)
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
        groups = {"intermediate_groups": self.intermediate_groups, "output_groups": self.output_groups}
        check_feed_forward(self, "hidden_size", self.hidden_size, **groups)

    @property
    def _attention(self) -> GroupedHeads:
        return GroupedHeads(
            query_groups=self.query_groups,
            key_groups=self.key_groups,
            value_groups=self.value_groups,
            output_groups=self.attention_output_groups,
            kernel_size=self.kernel_size,
            dilation=self.dilation,
            stride=self.stride,
        )

    def layer(self, make: LayerFactory, number: int, size: int) -> Layer:
        feed_forward = FeedForward(
            intermediate=make.grouped(size, self.intermediate_groups),
            output=make.grouped(self.hidden_size, self.output_groups),
            activation=ACTIVATIONS[self.activation],
        )
        attention = self._attention.build(make, self.hidden_size, self.heads, self.attention_dropout)
        return make.layer(attention, feed_forward, self.dropout)
