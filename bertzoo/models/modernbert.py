"""ModernBERT (Warner et al. 2024), https://arxiv.org/abs/2412.13663; Ettin (Weller et al. 2025) has smaller ones."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import flax.linen as nn

from bertzoo.core.errors import ConfigError
from bertzoo.models.compute import ACTIVATIONS, Activation, Compute
from bertzoo.models.parts import Backbone, LayerFactory, ModelConfig, layer_factory
from bertzoo.nn import (
    Dropout,
    Embedding,
    Encoder,
    GatedFeedForward,
    Linear,
    MaskedHead,
    PreNormLayer,
    RotaryAttention,
    ScaleNorm,
    TruncatedNormal,
)


@dataclass(frozen=True, kw_only=True)
class ModernBert(ModelConfig):
    """Sizes of ModernBERT; the defaults are ModernBERT-base (Table 3).

    Positions are rotations of queries and keys. Every `global_every`-th layer, from the first, sees all tokens; the
    others see `window` // 2 on either side. The pooled output is the first token's state itself.
    """

    kind: Literal["modernbert"] = "modernbert"
    vocab_size: int = 50368
    hidden_size: int = 768
    layers: int = 22
    heads: int = 12
    feed_forward_size: int = 1152  # of each half of the gated feed-forward
    max_positions: int = 8192
    global_every: int = 3  # layers from one that sees all tokens to the next
    window: int = 128  # tokens that the other layers see, half of them on either side
    global_theta: float = 160000.0  # base of the rotations in layers that see all tokens
    local_theta: float = 10000.0  # and in the others
    activation: Activation = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size // self.heads % 2:
            raise ConfigError(
                f"heads = {self.heads} of hidden_size = {self.hidden_size} have {self.hidden_size // self.heads} "
                "features, an odd number, which rotations cannot pair. Change one of the two."
            )

    @property
    def token_types(self) -> int:
        """Always 0: only [SEP] marks where the second segment begins."""
        return 0

    @property
    def head_activation(self) -> str:
        return self.activation

    def backbone(self, compute: Compute) -> Backbone:
        """Build the embedding without positions and the layers; the last layer ends with the final norm."""
        make = layer_factory(compute, self.initializer_range, self.norm_epsilon)
        word = make.word_table(self.vocab_size, self.hidden_size)
        embedding = Embedding(
            word=word, position=None, token_type=None, norm=self._norm(make, "embed"), dropout=Dropout(self.dropout)
        )
        layers = tuple(self._layer(make, number) for number in range(self.layers))
        return Backbone(embedding=embedding, encoder=Encoder(layers=layers), pooler=None)

    def masked_head(self, compute: Compute) -> MaskedHead:
        """Build the masked-LM head, tied to the word embeddings, without biases but those of the entries."""
        head: MaskedHead = super().masked_head(compute)  # type: ignore[assignment]
        make = layer_factory(compute, self.initializer_range, self.norm_epsilon)
        dense = self._linear(make, self.hidden_size, "model", "embed", init=self._narrow)
        return head.clone(dense=dense, norm=self._norm(make, "embed"))

    def hidden_layer(self, compute: Compute) -> tuple[nn.Module, nn.Module]:
        make = layer_factory(compute, self.initializer_range, self.norm_epsilon)
        dense = self._linear(make, self.hidden_size, "model", "pooled", init=self._narrow)
        return dense, self._norm(make, "pooled")

    @property
    def _narrow(self) -> TruncatedNormal:
        return TruncatedNormal(self.initializer_range / (2 * self.layers) ** 0.5)

    def _linear(
        self, make: LayerFactory, features: int | tuple[int, ...], *axes: str, init: Callable | None = None
    ) -> Linear:
        dense = make.dense(features, *axes, init=init)
        return Linear(features=dense.features, axes=dense.axes, kernel_init=dense.kernel_init, dtype=dense.dtype)

    def _norm(self, make: LayerFactory, axis: str = "model") -> ScaleNorm:
        return ScaleNorm(epsilon=make.norm_epsilon, axis=axis, dtype=make.compute.jax_dtype)

    def _layer(self, make: LayerFactory, number: int) -> PreNormLayer:
        is_global, inner = number % self.global_every == 0, (self.heads, self.hidden_size // self.heads)
        project = partial(self._linear, make, inner, "model", "heads", "head_size")
        attention = RotaryAttention(
            query=project(),
            key=project(),
            value=project(),
            output=self._linear(make, self.hidden_size, "heads", "head_size", "model", init=self._narrow),
            dropout=Dropout(self.attention_dropout),
            theta=self.global_theta if is_global else self.local_theta,
            reach=None if is_global else self.window // 2,
        )
        feed_forward = GatedFeedForward(
            intermediate=self._linear(make, self.feed_forward_size, "model", "feed_forward"),
            gate=self._linear(make, self.feed_forward_size, "model", "feed_forward"),
            output=self._linear(make, self.hidden_size, "feed_forward", "model", init=self._narrow),
            activation=ACTIVATIONS[self.activation],
            dropout=Dropout(self.dropout),
        )
        return make.recomputed(PreNormLayer)(
            attention_norm=self._norm(make) if number else None,
            attention=attention,
            feed_forward_norm=self._norm(make),
            feed_forward=feed_forward,
            output_norm=self._norm(make) if number == self.layers - 1 else None,
        )
