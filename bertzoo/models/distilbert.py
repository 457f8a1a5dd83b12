"""DistilBERT (Sanh et al. 2019), https://arxiv.org/abs/1910.01108: BERT without token types and without a pooler."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bertzoo.models.compute import Activation
from bertzoo.models.parts import ModelConfig


@dataclass(frozen=True, kw_only=True)
class DistilBert(ModelConfig):
    """Sizes of DistilBERT; the defaults are the released model's, 6 layers of width 768 (§3)."""

    token_types: ClassVar[int] = 0  # only [SEP] marks where the second segment begins

    kind: Literal["distilbert"] = "distilbert"
    vocab_size: int = 30522
    hidden_size: int = 768
    layers: int = 6
    heads: int = 12
    feed_forward_size: int = 3072
    max_positions: int = 512
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-12
