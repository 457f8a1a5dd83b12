"""BERT (Devlin et al. 2019), https://arxiv.org/abs/1810.04805."""

from dataclasses import dataclass
from typing import Literal

from bertzoo.models.compute import Activation, Compute
from bertzoo.models.parts import Backbone, ModelConfig, layer_factory
from bertzoo.nn import Encoder


@dataclass(frozen=True, kw_only=True)
class Bert(ModelConfig):
    """Sizes of BERT; the defaults are BERT-base (§3)."""

    kind: Literal["bert"] = "bert"
    vocab_size: int = 30522
    hidden_size: int = 768
    layers: int = 12
    heads: int = 12
    feed_forward_size: int = 3072
    max_positions: int = 512
    token_types: int = 2
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-12

    def backbone(self, compute: Compute) -> Backbone:
        """Build the embedding, post-norm layers and the tanh pooler."""
        make = layer_factory(compute, self.initializer_range, self.norm_epsilon)
        return Backbone(
            embedding=make.embedding(self, self.hidden_size),
            encoder=Encoder(layers=make.layers(self, self.hidden_size, self.heads, self.feed_forward_size)),
            pooler=make.pooler(self.hidden_size),
        )
