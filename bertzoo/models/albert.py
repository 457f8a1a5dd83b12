"""ALBERT (Lan et al. 2020), https://arxiv.org/abs/1909.11942: one layer applied many times, factorised embeddings."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import flax.linen as nn

from bertzoo.models.compute import Activation
from bertzoo.models.parts import LayerFactory, ModelConfig
from bertzoo.nn import Dense


@dataclass(frozen=True, kw_only=True)
class Albert(ModelConfig):
    """Sizes of ALBERT; the defaults are ALBERT-base as released in version 2, without dropout (§3.1, Table 1)."""

    has_pooler: ClassVar[bool] = True

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

    def projection(self, make: LayerFactory) -> Dense:
        """Build a projection, even to an equal width."""
        return make.dense(self.hidden_size, "embed", "model")

    def encoder_layers(self, make: LayerFactory) -> tuple[nn.Module, ...]:
        """Build one layer, which is used `layers` times."""
        return (self.layer(make, 0, self.feed_forward_size),) * self.layers
