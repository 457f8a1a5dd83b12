"""schuBERT (Khetan and Karnin 2020), https://arxiv.org/abs/2005.06628: BERT whose layers may differ in size."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import flax.linen as nn

from bertzoo.core.errors import ConfigError
from bertzoo.models.compute import Activation
from bertzoo.models.parts import LayerFactory, ModelConfig, check_sizes


@dataclass(frozen=True, kw_only=True)
class SchuBert(ModelConfig):
    """Sizes of schuBERT; the defaults are BERT-base.

    All layers have one width; each has its own feed-forward size, heads, and key and value sizes (§4, Table 3).
    """

    has_pooler: ClassVar[bool] = True

    kind: Literal["schubert"] = "schubert"
    vocab_size: int = 30522
    hidden_size: int = 768
    feed_forward_sizes: tuple[int, ...] = (3072,) * 12  # feed-forward width of each layer
    heads: tuple[int, ...] = (12,) * 12  # attention heads of each layer
    key_sizes: tuple[int, ...] = (64,) * 12  # width of a head's queries and keys in each layer
    value_sizes: tuple[int, ...] = (64,) * 12  # width of a head's values in each layer
    max_positions: int = 512
    token_types: int = 2
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-12

    def __post_init__(self):
        check_sizes(self)
        for name in ("heads", "key_sizes", "value_sizes"):
            if len(getattr(self, name)) != self.layers:
                raise ConfigError(
                    f"{name} has {len(getattr(self, name))} entries, but feed_forward_sizes has {self.layers}. Give "
                    "one entry per layer in both."
                )

    @property
    def layers(self) -> int:
        return len(self.feed_forward_sizes)

    def encoder_layers(self, make: LayerFactory) -> tuple[nn.Module, ...]:
        shapes = zip(self.heads, self.key_sizes, self.value_sizes, self.feed_forward_sizes, strict=True)
        return tuple(
            make.layer(
                make.attention(self.hidden_size, heads, self.attention_dropout, (key_size, value_size)),
                make.feed_forward(self.hidden_size, size, self.activation),
                self.dropout,
            )
            for heads, key_size, value_size, size in shapes
        )
