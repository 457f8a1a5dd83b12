"""Code that BERT-like models share: builders of modules, checks of sizes, the model with pretraining heads."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.core.config import divisors
from bertzoo.core.errors import ConfigError
from bertzoo.models.compute import ACTIVATIONS, Activation, Compute
from bertzoo.nn import (
    Dense,
    Dropout,
    Embedding,
    Encoder,
    FeedForward,
    Grouped,
    Layer,
    LayerNorm,
    Linear,
    MaskedHead,
    ScaleNorm,
    SelfAttention,
    Table,
    TruncatedNormal,
    glorot_uniform,
)
from bertzoo.nn.positions import masked_states, tokens_read

AnyLayer = TypeVar("AnyLayer", bound=nn.Module)
FeedForwardSize = int | tuple[int, ...]  # one for all layers, or one per layer


class Backbone(NamedTuple):
    """Unbound modules of a model without its heads; without a pooler, the pooled output is the first token's state."""

    embedding: nn.Module
    encoder: nn.Module
    pooler: nn.Module | None


WIDEST = 2**31 - 1  # the largest size, except for those in TRACED
DEEPEST, TRACED = 1000, ("layers", "feed_forwards", "kernel_size")  # most layers and taps, which are traced one by one
# Smallest and largest value of other numbers, by the last word of their names. float32 rounds a much smaller epsilon
# to 0, and a larger one hides the text. A table of token types has a row for each of two segments.
RANGES: dict[str, tuple[float, float]] = {
    "dropout": (0.0, 0.99),
    "range": (0.0, 1.0),
    "epsilon": (1e-30, 1.0),
    "thresholds": (0.0, 1.0),
    "types": (2, WIDEST),
}


class ModelConfig:
    """Base class of model configs. It documents the keys; each config declares its own keys and defaults."""

    vocab_size: int  # tokens of the vocabulary
    embedding_size: int  # width of the embeddings
    hidden_size: int  # width of a token's state between the layers
    layers: int  # encoder layers
    heads: Any  # attention heads of a layer; they divide its width
    feed_forward_size: Any  # width inside the feed-forward
    max_positions: int  # longest sequence, in tokens
    token_types: int  # number of token types, which mark segments; 0: no embeddings of them
    activation: Activation  # function between the feed-forward's projections and in the masked head
    dropout: float  # dropout rate of embeddings and of attention and feed-forward outputs
    attention_dropout: float  # dropout rate of attention probabilities
    initializer_range: float  # standard deviation of initial weights
    norm_epsilon: float  # number added to the variance in layer normalisation

    has_pooler: ClassVar[bool] = False  # whether `ModelConfig.backbone` adds a dense layer and tanh on the first token
    padding_seen: ClassVar[int] = 0  # how many of the padding tokens after a row affect its last token
    head_activation: ClassVar[str] = "none"  # activation of the hidden layer that a head usually has, or "none"

    def __post_init__(self):
        check_sizes(self)
        check_divides("hidden_size", self.hidden_size, heads=self.heads)

    def backbone(self, compute: Compute) -> Backbone:
        """Build the modules without heads, by the methods `embedding`, `projection` and `encoder_layers`."""
        make = self.factory(compute)
        return Backbone(
            embedding=self.embedding(make),
            encoder=Encoder(projection=self.projection(make), layers=self.encoder_layers(make)),
            pooler=make.dense(self.hidden_size, "model", "pooled") if self.has_pooler else None,
        )

    def factory(self, compute: Compute) -> "LayerFactory":
        return layer_factory(compute, self.initializer_range, self.norm_epsilon)

    def embedding(self, make: "LayerFactory") -> Embedding:
        """Build word, position and (if any) token-type embeddings, and a norm."""
        width = getattr(self, "embedding_size", self.hidden_size)
        return Embedding(
            word=make.table(self.vocab_size, width, "vocab"),
            position=make.table(self.max_positions, width, "position"),
            token_type=make.token_types(self.token_types, width),
            norm=make.norm("embed"),
            dropout=Dropout(self.dropout),
        )

    def projection(self, make: "LayerFactory") -> Dense | None:
        """Build a linear layer from the embedding's width to that of the layers, or return None if both are equal."""
        return make.projection(getattr(self, "embedding_size", self.hidden_size), self.hidden_size)

    def encoder_layers(self, make: "LayerFactory") -> tuple[nn.Module, ...]:
        """Build the layers of `backbone`."""
        sizes = enumerate(per_layer(self.feed_forward_size, self.layers))
        return tuple(self.layer(make, number, size) for number, size in sizes)

    def layer(self, make: "LayerFactory", number: int, size: int) -> nn.Module:
        """Build the layer of index `number` with the feed-forward size `size`; by default BERT's."""
        return make.dense_layer(self, self.hidden_size, self.heads, size)

    def hidden_layer(self, compute: Compute) -> tuple[nn.Module, nn.Module | None]:
        """Build the hidden layer of a classifier, and the norm after its activation, if any."""
        return self.factory(compute).dense(self.hidden_size, "model", "pooled"), None

    def masked_head(self, compute: Compute) -> nn.Module:
        """Build the masked-LM head, tied to the word embeddings and as wide as they are."""
        width = getattr(self, "embedding_size", self.hidden_size)
        return self.factory(compute).masked_head(self.vocab_size, width, self.activation)


class LayerFactory(NamedTuple):
    """Builds the layers of one model from the settings that they share: computation, initialiser and norm epsilon."""

    compute: Compute
    kernel_init: Callable
    norm_epsilon: float
    biases: bool = True  # whether dense layers and norms have biases; grouped convolutions always do

    def dense(self, features: int | tuple[int, ...], *axes: str, init: Callable | None = None) -> Dense:
        """Build a linear layer to `features`. axes: kernel axis names, inputs first. init: replaces `kernel_init`."""
        features = (features,) if isinstance(features, int) else features
        kind = Dense if self.biases else Linear
        return kind(features=features, axes=axes, kernel_init=init or self.kernel_init, dtype=self.compute.jax_dtype)

    def grouped(self, features: int | tuple[int, ...], groups: int, **window: Any) -> Grouped:
        """Build a grouped convolution with output channels `features`. window: Grouped's; by default one token."""
        return Grouped(
            features=(features,) if isinstance(features, int) else features,
            groups=groups,
            kernel_init=self.kernel_init,
            dtype=self.compute.jax_dtype,
            **window,
        )

    def norm(self, axis: str = "model") -> LayerNorm:
        kind = LayerNorm if self.biases else ScaleNorm
        return kind(epsilon=self.norm_epsilon, axis=axis, dtype=self.compute.jax_dtype)

    def table(self, rows: int, features: int, axis: str, width: str = "embed") -> Table:
        return Table(rows=rows, features=features, axes=(axis, width), init=self.kernel_init)

    def token_types(self, count: int, features: int, width: str = "embed") -> Table | None:
        """Build a table of `count` token types, or return None for 0. width: axis name of the features."""
        return self.table(count, features, "token_type", width) if count else None

    def attention(self, width: int, heads: int, dropout: float, sizes: tuple[int, int] | None = None) -> SelfAttention:
        """Build dense self-attention; `sizes`: key and value size of a head, by default width / heads."""
        key_size, value_size = sizes or (width // heads, width // heads)
        return SelfAttention(
            query=self.dense((heads, key_size), "model", "heads", "head_size"),
            key=self.dense((heads, key_size), "model", "heads", "head_size"),
            value=self.dense((heads, value_size), "model", "heads", "head_size"),
            output=self.dense(width, "heads", "head_size", "model"),
            dropout=Dropout(dropout),
        )

    def feed_forward(self, width: int, size: int, activation: Activation, groups: int = 1) -> FeedForward:
        """Build a feed-forward of hidden width `size`: dense layers or, for groups > 1, grouped convolutions."""
        if groups == 1:
            intermediate, output = self.dense(size, "model", "feed_forward"), self.dense(width, "feed_forward", "model")
        else:
            intermediate, output = self.grouped(size, groups), self.grouped(width, groups)
        return FeedForward(intermediate=intermediate, output=output, activation=ACTIVATIONS[activation])

    def recomputed(self, layer: type[AnyLayer]) -> type[AnyLayer]:
        """Return the layer class; if compute.remat is set, the backward pass recomputes the layer's activations."""
        # Argument 3 of __call__ (self, x, mask, train) is a Python bool.
        return nn.remat(layer, static_argnums=(3,)) if self.compute.remat else layer

    def layer(
        self, attention: nn.Module, feed_forward: nn.Module, dropout: float, norm: Callable[[], nn.Module] | None = None
    ) -> Layer:
        """Build a post-norm layer. norm: builds each of its two norms, by default the method `norm`."""
        norm = norm or self.norm
        return self.recomputed(Layer)(
            attention=attention,
            attention_norm=norm(),
            feed_forward=feed_forward,
            feed_forward_norm=norm(),
            dropout=Dropout(dropout),
        )

    def dense_layer(self, config: ModelConfig, width: int, heads: int, feed_forward_size: int) -> Layer:
        """Build a post-norm layer of width `width` with dense attention and feed-forward."""
        return self.layer(
            self.attention(width, heads, config.attention_dropout),
            self.feed_forward(width, feed_forward_size, config.activation),
            config.dropout,
        )

    def projection(self, inputs: int, width: int) -> Dense | None:
        """Build a linear layer from `inputs` (embedding width) to `width`, or return None if both are equal.

        Its kernel is initialised Glorot-uniform, as in ELECTRA.
        """
        return None if inputs == width else self.dense(width, "embed", "model", init=glorot_uniform)

    def masked_head(
        self, vocab_size: int, width: int, activation: Activation, extra: nn.Module | None = None
    ) -> MaskedHead:
        """Build the masked-LM head, tied to the word embeddings; `extra` maps the features beyond their width."""
        return MaskedHead(
            dense=self.dense(width, "model", "embed"),
            norm=self.norm("embed"),
            activation=ACTIVATIONS[activation],
            vocab_size=vocab_size,
            extra=extra,
        )


def layer_factory(compute: Compute, initializer_range: float, norm_epsilon: float) -> LayerFactory:
    """Return a factory that draws kernels from N(0, initializer_range²), cut at ±2σ, not rescaled (BERT's TF code)."""
    return LayerFactory(compute, TruncatedNormal(initializer_range), norm_epsilon)


def logit() -> Dense:
    """Build a dense layer with one float32 output and a Glorot-uniform initial kernel, as in ELECTRA's code."""
    axes = ("pooled", "classes")
    return Dense(features=(1,), axes=axes, kernel_init=glorot_uniform, dtype=jnp.dtype("float32"))


def check_divides(width: str, size: int, **counts: int) -> None:
    """Raise ConfigError unless every number in `counts`, such as heads=12, divides `size`, whose key is `width`."""
    for name, count in counts.items():
        if count < 1 or size % count:
            near = sorted(sorted(divisors(size), key=lambda n: abs(n - count))[:3])
            raise ConfigError(
                f"{name} = {count} does not divide {width} = {size}. Set {name} to one of "
                f"{', '.join(map(str, near))}, or change {width}."
            )


def check_sizes(config: Any) -> None:
    """Raise ConfigError if a number in the config of a model or a head is outside its range.

    Sizes range from 1 to WIDEST, or to DEEPEST for those in TRACED, all other numbers as in RANGES.
    """
    for name, value in ((field.name, getattr(config, field.name)) for field in dataclasses.fields(config)):
        if value == ():
            raise ConfigError(f"{name} is empty. Give at least one.")
        numbers = [n for n in (value if isinstance(value, tuple) else (value,)) if type(n) in (int, float)]
        if len(numbers) > DEEPEST and name not in RANGES:
            raise ConfigError(f"{name} has {len(numbers)} entries, more than {DEEPEST}. Use fewer layers.")
        for number in numbers:
            least, most = RANGES.get(name.split("_")[-1]) or (1, DEEPEST if name in TRACED else WIDEST)
            if not least <= number <= most:
                inside = f" holds {number}, which" if isinstance(value, tuple) else ""
                raise ConfigError(f"{name} = {value}{inside} is not between {least} and {most}. Use one between.")


class Encoded(NamedTuple):
    """Output of a backbone: hidden states and attentions as in EncoderOutput, and the pooled first token (B,D)."""

    hidden_states: tuple[jax.Array, ...]
    attentions: tuple[jax.Array, ...]
    pooled: jax.Array


class OnBackbone(nn.Module):
    """Base class of models, with the modules of a Backbone; subclasses add a head."""

    embedding: nn.Module
    encoder: nn.Module
    pooler: nn.Module | None

    reads_first: ClassVar[bool] = False  # whether the head reads only the pooled first token

    def encode(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        attention_mask: jax.Array,
        train: bool,
        positions_BR: jax.Array | None = None,
    ) -> Encoded:
        """Run embedding, encoder and pooler, a tanh of a dense layer on the first token's state (BERT §3.1).

        With `positions_BR`, the first of them that of [CLS], the last hidden state has only these tokens, (B,R,D).
        """
        x_BLE = self.embedding(input_ids, token_type_ids, attention_mask, train)
        hidden_states, attentions = self.encoder(x_BLE, attention_mask, train, positions_BR)
        pooled_BD = hidden_states[-1][:, 0]
        if self.pooler is not None:
            pooled_BD = jnp.tanh(self.pooler(pooled_BD))
        return Encoded(hidden_states, attentions, pooled_BD)


class PretrainingOutput(NamedTuple):
    """The fields of Encoded, token logits (B,P,V) at P masked positions, and sentence logits (B,2) or None."""

    hidden_states: tuple[jax.Array, ...]
    attentions: tuple[jax.Array, ...]
    pooled: jax.Array
    masked_logits: jax.Array
    sentence_logits: jax.Array | None


class Pretraining(OnBackbone):
    """Backbone, masked language model head and, for NSP or SOP, a two-way head on the pooled first token.

    With `masked_only`, the last layer computes only the R tokens that the heads read (`tokens_read`), and its hidden
    state is (B,R,D). If rows have at most R tokens, the layer computes all of them.
    """

    masked_head: nn.Module
    sentence_head: nn.Module | None

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        attention_mask: jax.Array,
        masked_positions: jax.Array,
        train: bool = False,
        masked_only: bool = False,
    ) -> PretrainingOutput:
        read_BR = tokens_read(masked_positions, input_ids.shape[1]) if masked_only else None
        encoded = self.encode(input_ids, token_type_ids, attention_mask, train, read_BR)
        masked_BPD = masked_states(encoded.hidden_states[-1], masked_positions, read_BR)
        masked_BPV = self.masked_head(masked_BPD, self.embedding.word.embedding)
        sentence_BC = None if self.sentence_head is None else self.sentence_head(encoded.pooled)
        return PretrainingOutput(*encoded, masked_BPV, sentence_BC)


def pretraining(config: ModelConfig, compute: Compute, sentence: bool) -> Pretraining:
    """Build a model with its masked language model head; `sentence` adds the two-way sentence head."""
    make = layer_factory(Compute(dtype="float32"), config.initializer_range, config.norm_epsilon)
    head = make.dense(2, "pooled", "classes") if sentence else None
    return Pretraining(*config.backbone(compute), masked_head=config.masked_head(compute), sentence_head=head)


def per_layer(size: FeedForwardSize, layers: int) -> tuple[int, ...]:
    """Return the feed-forward size of each layer. size: one for all layers, or a tuple with one per layer."""
    return size if isinstance(size, tuple) else (size,) * layers


def check_feed_forward(config: Any, name: str, width: int, **groups: int) -> None:
    """Raise ConfigError unless feed_forward_size is one int or one per layer, and all `groups` divide it and `width`.

    name: config key of `width`.
    """
    check_divides(name, width, **groups)
    size, layers = config.feed_forward_size, config.layers
    if isinstance(size, tuple) and len(size) != layers:
        raise ConfigError(
            f"feed_forward_size lists {len(size)} sizes, but layers = {layers}. Give one size per layer, or one size "
            "for all layers."
        )
    for layer_size in dict.fromkeys(per_layer(size, layers)):
        check_divides("feed_forward_size", layer_size, **groups)
