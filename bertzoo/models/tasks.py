"""Configs of output heads (`Head` is their union). `build` returns a module: the model's backbone with the head."""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.core.errors import ConfigError
from bertzoo.models.compute import ACTIVATIONS, Activation, Compute
from bertzoo.models.parts import Backbone, Leaves, OnBackbone, Pretraining, check_sizes, leaves, logit, pretraining
from bertzoo.models.replaced import replaced_head
from bertzoo.nn import ClassificationHead, Dense, DensePair, Dropout, JointSpanHead, PairHead
from bertzoo.nn.parameter import init_shapes

Problem = Literal["regression", "single_label_classification", "multi_label_classification"]


class TaskOutput(NamedTuple):
    """The fields of Encoded and the head's logits: (B,C), (B,L) or (B,L,C) for C classes, or None without a head."""

    hidden_states: tuple[jax.Array, ...]
    attentions: tuple[jax.Array, ...]
    pooled: jax.Array
    logits: jax.Array | None


class Encoding(OnBackbone):
    """A backbone without a head; subclasses add a head."""

    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, train: bool = False
    ) -> TaskOutput:
        encoded = self.encode(input_ids, token_type_ids, attention_mask, train)
        return TaskOutput(*encoded, self.head(encoded.hidden_states[-1], encoded.pooled, train))

    def logits(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, train: bool = False
    ) -> jax.Array | None:
        """Return only the logits, or None without a head. A subclass may skip what only other outputs need."""
        return self(input_ids, token_type_ids, attention_mask, train).logits

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> jax.Array | None:
        return None


class SequenceClassifier(Encoding):
    """A backbone with a head on the pooled first token; `logits` computes the last layer for the first token alone."""

    classifier: nn.Module

    def logits(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, train: bool = False
    ) -> jax.Array:
        first_BR = jnp.zeros((len(input_ids), 1), jnp.int32)
        encoded = self.encode(input_ids, token_type_ids, attention_mask, train, first_BR)
        return self.head(encoded.hidden_states[-1], encoded.pooled, train)

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> jax.Array:
        return self.classifier(pooled_BD, train)


class TokenClassifier(Encoding):
    """A backbone with a head on every token."""

    token_classifier: nn.Module

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> jax.Array:
        return self.token_classifier(last_BLD, train)


class SpanFinder(Encoding):
    """A backbone with two logits per token, (B,L,2): for an answer's first token and for its last (BERT §4.2)."""

    span_head: nn.Module

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> jax.Array:
        return self.span_head(last_BLD, train)


class JointSpanOutput(NamedTuple):
    """Fields of Encoded and of JointSpans, with K likely start positions.

    Shapes: start_logits (B,L), starts (B,K), end_logits (B,K,L), null_logits (B,).
    """

    hidden_states: tuple[jax.Array, ...]
    attentions: tuple[jax.Array, ...]
    pooled: jax.Array
    start_logits: jax.Array
    starts: jax.Array
    end_logits: jax.Array
    null_logits: jax.Array


class JointSpanFinder(OnBackbone):
    """A backbone with logits for an answer's start, for its end given each of K starts, and for no answer."""

    joint_span_head: nn.Module

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        attention_mask: jax.Array,
        train: bool = False,
        starts_BK: jax.Array | None = None,
    ) -> JointSpanOutput:
        """Return all logits; the end logits are conditioned on `starts_BK`, by default the likeliest starts."""
        encoded = self.encode(input_ids, token_type_ids, attention_mask, train)
        second_BL = token_type_ids * attention_mask
        return JointSpanOutput(*encoded, *self.joint_span_head(encoded.hidden_states[-1], second_BL, starts_BK))


class Discriminator(Encoding):
    """A backbone with one logit per token (B,L), above 0 if the token was likely replaced (ELECTRA §2)."""

    replaced_head: nn.Module

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> jax.Array:
        return self.replaced_head(last_BLD)


@dataclass(frozen=True, kw_only=True)
class NoHead:
    """Config of a model without a head; pooler: whether to keep the model's pooler, if any."""

    kind: Literal["none"] = "none"
    pooler: bool = True

    def build(self, model: Any, compute: Compute) -> Encoding:
        return Encoding(*_backbone(model, compute, self.pooler))


@dataclass(frozen=True, kw_only=True)
class MaskedLanguageModel:
    """Config of the masked language model head; sentence: whether to add the two-way head of NSP or SOP."""

    kind: Literal["masked"] = "masked"
    sentence: bool = False
    pooler: bool = True

    def build(self, model: Any, compute: Compute) -> Pretraining:
        module = pretraining(model, compute, self.sentence)
        return module if self.pooler else module.clone(pooler=None)


@dataclass(frozen=True, kw_only=True)
class SequenceClassification:
    """Config of a head that classifies a sequence or, with one label, predicts a number; `labels` names the logits.

    hidden: activation of a dense layer before the output layer, as wide as the model; "none" omits the dense layer.
    input_dropout: dropout rate before the dense layer.
    problem_type: "regression", "single_label_classification" or "multi_label_classification"; None if unknown.
    """

    kind: Literal["sequence_classification"] = "sequence_classification"
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    hidden: Activation | Literal["none"] = "none"
    input_dropout: float = 0.0
    dropout: float = 0.1
    problem_type: Problem | None = None
    pooler: bool = True

    def __post_init__(self):
        check_sizes(self)
        if self.hidden == "none" and self.input_dropout:
            raise ConfigError(
                f'input_dropout = {self.input_dropout} needs a hidden layer, but hidden = "none". Set hidden to an '
                "activation, or remove input_dropout."
            )

    def build(self, model: Any, compute: Compute) -> SequenceClassifier:
        embedding, encoder, pooler = _backbone(model, compute, self.pooler)
        make = leaves(compute, model.initializer_range, model.norm_epsilon)
        head = _classification(make, len(self.labels), self.dropout)
        if self.hidden != "none":
            dense = make.dense(model.hidden_size, "model", "pooled")
            head = head.clone(
                dense=dense, activation=ACTIVATIONS[self.hidden], input_dropout=Dropout(self.input_dropout)
            )
        return SequenceClassifier(embedding, encoder, pooler, head)


@dataclass(frozen=True, kw_only=True)
class TokenClassification:
    """Config of a head that classifies every token; `labels` names the classes in the order of the logits."""

    kind: Literal["token_classification"] = "token_classification"
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    dropout: float = 0.1
    pooler: bool = True

    def __post_init__(self):
        check_sizes(self)

    def build(self, model: Any, compute: Compute) -> TokenClassifier:
        make = leaves(compute, model.initializer_range, model.norm_epsilon)
        head = _classification(make, len(self.labels), self.dropout)
        return TokenClassifier(*_backbone(model, compute, self.pooler), head)


@dataclass(frozen=True, kw_only=True)
class SpanExtraction:
    """Config of a head that finds the first and last token of an answer, as in extractive question answering."""

    kind: Literal["span"] = "span"
    dropout: float = 0.0
    pooler: bool = True

    def __post_init__(self):
        check_sizes(self)

    def build(self, model: Any, compute: Compute) -> SpanFinder:
        make = leaves(compute, model.initializer_range, model.norm_epsilon)
        return SpanFinder(*_backbone(model, compute, self.pooler), _classification(make, 2, self.dropout))


@dataclass(frozen=True, kw_only=True)
class JointSpanExtraction:
    """Config of a head that finds an answer's first token, its last token given the first, or no answer (ELECTRA).

    hidden_size: width of the layers that read pairs of tokens. beam: number of likely starts whose ends are predicted.
    """

    kind: Literal["joint_span"] = "joint_span"
    hidden_size: int = 512
    beam: int = 20
    pooler: ClassVar[bool] = False

    def __post_init__(self):
        check_sizes(self)

    def build(self, model: Any, compute: Compute) -> JointSpanFinder:
        head = JointSpanHead(start=logit(), end=self._pair(compute), null=self._pair(compute), beam=self.beam)
        return JointSpanFinder(*_backbone(model, compute, self.pooler), head)

    def _pair(self, compute: Compute) -> PairHead:
        dense = DensePair(
            features=self.hidden_size,
            axes=("model", "pooled"),
            kernel_init=nn.initializers.glorot_uniform(),
            dtype=compute.jax_dtype,
        )
        # Always the exact gelu, whatever the model's activation is.
        return PairHead(dense=dense, activation=ACTIVATIONS["gelu"], output=logit())


@dataclass(frozen=True, kw_only=True)
class ReplacedTokens:
    """Config of a head that predicts which tokens were replaced: ELECTRA's discriminator, without a pooler."""

    kind: Literal["replaced"] = "replaced"
    pooler: ClassVar[bool] = False

    def build(self, model: Any, compute: Compute) -> Discriminator:
        return Discriminator(*_backbone(model, compute, self.pooler), replaced_head(model, compute))


Head = (
    NoHead
    | MaskedLanguageModel
    | ReplacedTokens
    | SequenceClassification
    | TokenClassification
    | SpanExtraction
    | JointSpanExtraction
)


def parameter_shapes(model: Any, head: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter, by path, from the configs of a model and a head; computes no values."""
    return {path: shape for path, (shape, _) in _parameters(model, head).items()}


def parameter_axes(model: Any, head: Any) -> dict[str, tuple[str, ...]]:
    """Return the logical axis names of every parameter, by path, from the configs of a model and a head."""
    return {path: axes for path, (_, axes) in _parameters(model, head).items()}


@functools.lru_cache(maxsize=64)  # a run needs this again for every model that it saves
def _parameters(model: Any, head: Any) -> dict[str, tuple[tuple[int, ...], tuple[str, ...]]]:
    module = head.build(model, Compute())
    ids = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    more = (jax.ShapeDtypeStruct((1, 1), jnp.int32),) if isinstance(module, Pretraining) else ()
    boxed = init_shapes(module.init, jax.random.key(0), ids, ids, ids, *more)["params"]
    flat, _ = jax.tree_util.tree_flatten_with_path(boxed, is_leaf=lambda leaf: isinstance(leaf, nn.Partitioned))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): (box.value.shape, box.names) for path, box in flat}


def _backbone(model: Any, compute: Compute, pooler: bool) -> Backbone:
    backbone = model.backbone(compute)
    return backbone if pooler else backbone._replace(pooler=None)


def _classification(make: Leaves, classes: int, dropout: float) -> ClassificationHead:
    output: Dense = make.dense(classes, "pooled", "classes")
    return ClassificationHead(
        dense=None, activation=ACTIVATIONS["gelu"], input_dropout=Dropout(0.0), output=output, dropout=Dropout(dropout)
    )
