"""ELECTRA (Clark et al. 2020), https://arxiv.org/abs/2003.10555: BERT with an embedding width of its own."""

from dataclasses import dataclass
from typing import Literal

from bertzoo.models.compute import Activation
from bertzoo.models.parts import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Electra(ModelConfig):
    """Sizes of an ELECTRA discriminator or generator; the defaults are ELECTRA-small's discriminator (Table 6).

    An embedding narrower or wider than the layers is projected after its norm and dropout. The pooled output is the
    first token's state itself.
    """

    kind: Literal["electra"] = "electra"
    vocab_size: int = 30522
    embedding_size: int = 128
    hidden_size: int = 256
    layers: int = 12
    heads: int = 4
    feed_forward_size: int = 1024
    max_positions: int = 512
    token_types: int = 2
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-12
