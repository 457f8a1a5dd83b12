"""MobileBERT and its teacher IB-BERT (Sun et al. 2020), https://arxiv.org/abs/2004.02984: bottleneck layers."""

from dataclasses import dataclass, field
from typing import Literal

import flax.linen as nn

from bertzoo.core.errors import ConfigError
from bertzoo.models.attention import AttentionKind, DenseHeads
from bertzoo.models.compute import Activation, Compute
from bertzoo.models.parts import FeedForwardSize, LayerFactory, ModelConfig, check_feed_forward, check_sizes
from bertzoo.nn import (
    Bottleneck,
    BottleneckLayer,
    Dropout,
    Embedding,
    LayerNorm,
    MaskedHead,
    NoNorm,
    SharedBottleneck,
    Trigram,
    Untied,
    from_bottleneck,
    from_stream,
)


@dataclass(frozen=True, kw_only=True)
class MobileBert(ModelConfig):
    """Sizes of MobileBERT; the defaults are the released model's."""

    kind: Literal["mobilebert"] = "mobilebert"
    vocab_size: int = 30522
    embedding_size: int = 128
    hidden_size: int = 512  # width of a token's state between the layers
    # width inside a layer, a multiple of heads; "none": BERT's layers, of width hidden_size
    bottleneck_size: int | None = 128
    layers: int = 24
    heads: int = 4
    # width inside the feed-forward; one for all layers, or a list with one per layer
    feed_forward_size: FeedForwardSize = 512
    feed_forwards: int = 4  # number of consecutive feed-forwards in a layer
    feed_forward_groups: int = 1  # groups of the feed-forwards' projections; 1 in the released model
    # the attention inside the bottleneck; dense in the released model
    attention: AttentionKind = field(default_factory=DenseHeads)
    # input of queries, keys and values: the layer's input (stream, IB-BERT) or its bottleneck (tiny); shared: values
    # read the layer's input, queries and keys a second bottleneck (the released model)
    attention_input: Literal["stream", "bottleneck", "shared"] = "shared"
    # a scale and a shift per feature (no_norm), or layer normalisation
    norm: Literal["no_norm", "layer_norm"] = "no_norm"
    pooler: bool = False  # whether the pooled first token passes a dense layer and tanh
    # zero the padding before the embedding's trigrams; the published checkpoints do not
    mask_padding: bool = True
    max_positions: int = 512
    token_types: int = 2
    activation: Activation = "relu"
    dropout: float = 0.0
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-12

    def __post_init__(self):
        check_sizes(self)
        if self.embedding_size > self.hidden_size:
            raise ConfigError(
                f"embedding_size = {self.embedding_size} is larger than hidden_size = {self.hidden_size}. The "
                "masked-LM head has hidden_size features and ties embedding_size of them to the word embeddings. Use "
                f"embedding_size = {self.hidden_size} or less."
            )
        name, width = "bottleneck_size", self.bottleneck_size
        if width is None:
            name, width = "hidden_size", self.hidden_size
        inputs = width if self.attention_input == "bottleneck" else self.hidden_size
        self.attention.check(name, inputs, width, self.heads)
        check_feed_forward(self, name, width, feed_forward_groups=self.feed_forward_groups)
        if self.attention.kind == "mixed" and self.attention_input == "shared":
            raise ConfigError(
                'attention.kind = "mixed" needs one input for queries, keys and values, but with attention_input = '
                '"shared" the values have another input. Use attention_input = "stream" or "bottleneck".'
            )
        if self.bottleneck_size is not None:
            return
        if self.attention_input != "stream":
            raise ConfigError(
                f'attention_input = "{self.attention_input}" needs a bottleneck, but bottleneck_size = "none". Use '
                'attention_input = "stream".'
            )
        if self.feed_forwards != 1:
            raise ConfigError(
                f'feed_forwards = {self.feed_forwards} needs a bottleneck, but bottleneck_size = "none". Use '
                "feed_forwards = 1."
            )

    @property
    def padding_seen(self) -> int:
        """Number of padding tokens that affect a row's last token through trigrams and all convolutions."""
        return int(not self.mask_padding) + self.layers * getattr(self.attention, "padding_seen", 0)

    @property
    def has_pooler(self) -> bool:
        return self.pooler

    def embedding(self, make: LayerFactory) -> Embedding:
        """Build the trigram embedding, as wide as the layers."""
        return Embedding(
            word=make.table(self.vocab_size, self.embedding_size, "vocab"),
            position=make.table(self.max_positions, self.hidden_size, "position", "model"),
            token_type=make.token_types(self.token_types, self.hidden_size, "model"),
            norm=self._norm(make),
            dropout=Dropout(self.dropout),
            transformation=Trigram(
                features=self.hidden_size,
                kernel_init=make.kernel_init,
                dtype=make.compute.jax_dtype,
                mask_padding=self.mask_padding,
            ),
        )

    def projection(self, make: LayerFactory) -> None:
        """Return None, because the embedding is as wide as the layers."""

    def layer(self, make: LayerFactory, number: int, size: int) -> nn.Module:
        """Build a bottleneck layer or, without a bottleneck, a post-norm layer."""
        width, groups = self.bottleneck_size or self.hidden_size, self.feed_forward_groups
        attention = self.attention.build(make, width, self.heads, self.attention_dropout)
        repeat = range(self.feed_forwards)
        feed_forwards = tuple(make.feed_forward(width, size, self.activation, groups) for _ in repeat)
        norms = tuple(self._norm(make) for _ in repeat)
        if self.bottleneck_size is None:
            return make.layer(attention, feed_forwards[0], self.dropout, lambda: self._norm(make))

        def narrow(kind: type) -> nn.Module:
            return kind(dense=make.dense(width, "model", "bottleneck"), norm=self._norm(make))

        inputs = {"stream": from_stream, "bottleneck": from_bottleneck}
        return make.recomputed(BottleneckLayer)(
            bottleneck=narrow(Bottleneck),
            attention_input=inputs.get(self.attention_input) or narrow(SharedBottleneck),
            attention=attention,
            attention_norm=self._norm(make),
            feed_forward=feed_forwards,
            feed_forward_norm=norms,
            output=make.dense(self.hidden_size, "bottleneck", "model"),
            output_norm=self._norm(make),
            dropout=Dropout(self.dropout),
        )

    def masked_head(self, compute: Compute) -> MaskedHead:
        """Build the masked-LM head: `embedding_size` features are tied to the word embeddings, the others untied."""
        make = self.factory(compute)
        extra = None
        if self.embedding_size < self.hidden_size:
            extra = Untied(features=self.vocab_size, kernel_init=make.kernel_init)
        return make.masked_head(self.vocab_size, self.hidden_size, self.activation, extra)

    def _norm(self, make: LayerFactory) -> LayerNorm | NoNorm:
        return make.norm() if self.norm == "layer_norm" else NoNorm(axis="model", dtype=make.compute.jax_dtype)
