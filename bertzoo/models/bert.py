"""BERT (Devlin et al. 2019), https://arxiv.org/abs/1810.04805."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bertzoo.models.compute import Activation
from bertzoo.models.parts import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Bert(ModelConfig):
    """Sizes of BERT; the defaults are BERT-base (§3)."""

    has_pooler: ClassVar[bool] = True

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
