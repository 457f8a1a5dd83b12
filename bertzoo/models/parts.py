"""The wiring that BERT-like models share: what a paper's file passes its own parts into."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import flax.linen as nn
import jax

from bertzoo.errors import ConfigError
from bertzoo.models.compute import ACTIVATIONS, Activation, Compute
from bertzoo.nn import (
    Dense,
    Dropout,
    Embedding,
    Encoder,
    EncoderOutput,
    Layer,
    LayerNorm,
    MaskedHead,
    Table,
    pool,
)


class Leaves(NamedTuple):
    """Makers of the leaves of one model: what its config says once for all of them."""

    compute: Compute
    kernel_init: Callable
    norm_epsilon: float

    def dense(self, features: int | tuple[int, ...], *axes: str) -> Dense:
        features = (features,) if isinstance(features, int) else features
        return Dense(features=features, axes=axes, kernel_init=self.kernel_init, dtype=self.compute.jax_dtype)

    def norm(self, axis: str = "model") -> LayerNorm:
        return LayerNorm(epsilon=self.norm_epsilon, axis=axis, dtype=self.compute.jax_dtype)

    def table(self, rows: int, features: int, axis: str, width: str = "embed") -> Table:
        return Table(rows=rows, features=features, axes=(axis, width), init=self.kernel_init)


def leaves(compute: Compute, initializer_range: float, norm_epsilon: float) -> Leaves:
    """Leaves whose kernels start as a normal of the given σ, cut at ±2σ and not rescaled (BERT's TF code)."""
    return Leaves(compute, nn.initializers.truncated_normal(initializer_range), norm_epsilon)


def check_divides(width: str, size: int, **parts: int) -> None:
    """Raise ConfigError unless every part (heads, groups) divides the width it cuts."""
    for name, count in parts.items():
        if count < 1 or size % count:
            raise ConfigError(f"{name} = {count} does not divide {width} = {size}")


def check_sizes(config: Any) -> None:
    """Raise ConfigError unless every size is positive and every share of dropout is in [0, 1)."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, int) and value < 1:
            raise ConfigError(f"{field.name} = {value} is not a size: give at least 1")
        if field.name.endswith("dropout") and not 0 <= value < 1:
            raise ConfigError(f"{field.name} = {value} is not a share in [0, 1)")
        if isinstance(value, float) and value < 0:
            raise ConfigError(f"{field.name} = {value} is negative")


class PretrainingOutput(NamedTuple):
    """As EncoderOutput, and pooled (B,D), masked_logits (B,P,V), sentence_logits (B,2) or None."""

    hidden_states: tuple[jax.Array, ...]
    attentions: tuple[jax.Array, ...]
    pooled: jax.Array | None
    masked_logits: jax.Array
    sentence_logits: jax.Array | None


class Pretraining(nn.Module):
    """Backbone, masked language model head and, for NSP or SOP, a two-way head on the pooled first token."""

    embedding: nn.Module
    encoder: nn.Module
    pooler: nn.Module | None
    masked_head: nn.Module
    sentence_head: nn.Module | None

    def encode(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, train: bool
    ) -> EncoderOutput:
        x_BLE = self.embedding(input_ids, token_type_ids, train)
        return self.encoder(x_BLE, attention_mask, train)

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        attention_mask: jax.Array,
        masked_positions: jax.Array,
        train: bool = False,
    ) -> PretrainingOutput:
        hidden_states, attentions = self.encode(input_ids, token_type_ids, attention_mask, train)
        last_BLD = hidden_states[-1]
        pooled_BD = last_BLD[:, 0] if self.pooler is None else pool(self.pooler, last_BLD)
        masked_BPV = self.masked_head(last_BLD, masked_positions, self.embedding.word.embedding)
        sentence_BC = None if self.sentence_head is None else self.sentence_head(pooled_BD).astype("float32")
        return PretrainingOutput(hidden_states, attentions, pooled_BD, masked_BPV, sentence_BC)


class BertLike(Protocol):
    """The fields of a model config that the BERT-shaped wiring reads."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    @property
    def token_types(self) -> int: ...
    @property
    def activation(self) -> Activation: ...
    @property
    def dropout(self) -> float: ...


def bert_like(
    config: BertLike,
    make: Leaves,
    attention: Callable[[], nn.Module],
    feed_forward: Callable[[], nn.Module],
    sentence: bool,
) -> Pretraining:
    """BERT's pretraining model, the attention and feed-forward of every layer made by the caller.

    `sentence` adds the two-way sentence head.
    """
    width = config.hidden_size
    # Argument 3 of __call__ (self, x, mask, train) is a Python bool.
    layer = nn.remat(Layer, static_argnums=(3,)) if make.compute.remat else Layer
    return Pretraining(
        embedding=Embedding(
            word=make.table(config.vocab_size, width, "vocab"),
            position=make.table(config.max_positions, width, "position"),
            token_type=make.table(config.token_types, width, "token_type"),
            norm=make.norm("embed"),
            dropout=Dropout(config.dropout),
        ),
        encoder=Encoder(
            layers=tuple(
                layer(
                    attention=attention(),
                    attention_norm=make.norm(),
                    feed_forward=feed_forward(),
                    feed_forward_norm=make.norm(),
                    dropout=Dropout(config.dropout),
                )
                for _ in range(config.layers)
            )
        ),
        pooler=make.dense(width, "model", "pooled"),
        masked_head=MaskedHead(
            dense=make.dense(width, "model", "embed"),
            norm=make.norm("embed"),
            activation=ACTIVATIONS[config.activation],
            vocab_size=config.vocab_size,
        ),
        sentence_head=make.dense(2, "pooled", "classes") if sentence else None,
    )
