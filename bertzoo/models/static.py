"""Static word embeddings: a text's vector is the mean of its tokens' embeddings.

The order of the tokens does not count until training changes the position embeddings.

As in model2vec (https://github.com/MinishLab/model2vec), the word embeddings come from a model of sentences.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from flax.linen import initializers

from bertzoo.models.compute import Activation
from bertzoo.models.parts import LayerFactory, ModelConfig, check_sizes
from bertzoo.nn import Embedding, NoNorm


@dataclass(frozen=True, kw_only=True)
class Static(ModelConfig):
    """Sizes of static word embeddings, without layers. Position embeddings are zeros that training may change."""

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
        """Build the word embeddings, whose scales are 1 at first."""
        positions = make.table(self.max_positions, self.hidden_size, "position").clone(init=initializers.zeros)
        norm = NoNorm(axis="embed", dtype=make.compute.jax_dtype)
        return super().embedding(make).clone(position=positions, norm=norm)

    def encoder_layers(self, make: LayerFactory) -> tuple[()]:
        return ()
