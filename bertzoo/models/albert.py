"""ALBERT (Lan et al. 2020), https://arxiv.org/abs/1909.11942: one layer applied many times, factorised embeddings."""

from dataclasses import dataclass
from typing import Literal

from bertzoo.models.compute import Activation, Compute
from bertzoo.models.parts import Backbone, ModelConfig, layer_factory
from bertzoo.nn import Encoder


@dataclass(frozen=True, kw_only=True)
class Albert(ModelConfig):
    """Sizes of ALBERT; the defaults are ALBERT-base as released in version 2, without dropout (§3.1, Table 1)."""

    kind: Literal["albert"] = "albert"
    vocab_size: int = 30000
    embedding_size: int = 128
    hidden_size: int = 768
    layers: int = 12
    heads: int = 12
    feed_forward_size: int = 3072
    max_positions: int = 512
    token_types: int = 2
    activation: Activation = "gelu_tanh"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-12

    def backbone(self, compute: Compute) -> Backbone:
        """Build the embedding, a projection (even to an equal width), one layer used `layers` times, and the pooler."""
        make = layer_factory(compute, self.initializer_range, self.norm_epsilon)
        layer = make.layer(
            make.attention(self.hidden_size, self.heads, self.attention_dropout),
            make.feed_forward(self.hidden_size, self.feed_forward_size, self.activation),
            self.dropout,
        )
        return Backbone(
            embedding=make.embedding(self, self.embedding_size),
            encoder=Encoder(
                projection=make.dense(self.hidden_size, "embed", "model"),
                layers=(layer,) * self.layers,
            ),
            pooler=make.pooler(self.hidden_size),
        )
