"""A table of word vectors: a text's vector is the mean of its tokens' vectors.

The order of the tokens does not count until training changes the vectors of positions.

The idea of model2vec (https://github.com/MinishLab/model2vec): the words' vectors come from a model of sentences.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from flax.linen import initializers

from bertzoo.models.compute import Activation
from bertzoo.models.parts import LayerFactory, ModelConfig, check_sizes
from bertzoo.nn import Embedding, NoNorm


@dataclass(frozen=True, kw_only=True)
class Static(ModelConfig):
    """Sizes of a table of word vectors, without layers. Its vectors of positions are zeros that training may change."""

    layers: ClassVar[int] = 0
    token_types: ClassVar[int] = 0  # the words of both texts of a pair count alike

    kind: Literal["static"] = "static"
    vocab_size: int = 30522
    hidden_size: int = 256
    max_positions: int = 512
    activation: Activation = "gelu"
    dropout: float = 0.0
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-12

    def __post_init__(self):
        check_sizes(self)

    def embedding(self, make: LayerFactory) -> Embedding:
        """Build the embedding of words, whose scales are 1 at first."""
        positions = make.table(self.max_positions, self.hidden_size, "position").clone(init=initializers.zeros)
        norm = NoNorm(axis="embed", dtype=make.compute.jax_dtype)
        return super().embedding(make).clone(position=positions, norm=norm)

    def encoder_layers(self, make: LayerFactory) -> tuple[()]:
        return ()
