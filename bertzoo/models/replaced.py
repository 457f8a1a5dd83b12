"""Replaced token detection: a generator fills masked positions, and a discriminator finds the replaced tokens.

Both are ELECTRA's (Clark et al. 2020, §3.2), unless the model's config has a generator of its own.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.core.config import divisors
from bertzoo.core.errors import ConfigError
from bertzoo.models.bert import Bert
from bertzoo.models.compute import ACTIVATIONS, Compute
from bertzoo.models.electra import Electra
from bertzoo.models.parts import ModelConfig, layer_factory, logit
from bertzoo.models.squeezebert import SqueezeBert
from bertzoo.nn import Encoder, EncoderOutput, ReplacedHead
from bertzoo.nn.positions import masked_states, tokens_read


class Generator(nn.Module):
    """Map the discriminator's embedding output (B,L,E) to logits (B,P,V), at P positions of each row.

    With `masked_only`, the last layer computes only the tokens at these positions and the first token (`tokens_read`).
    """

    encoder: nn.Module
    masked_head: nn.Module

    def __call__(
        self,
        x_BLE: jax.Array,
        mask_BL: jax.Array,
        positions_BP: jax.Array,
        table_VE: jax.Array,
        train: bool,
        masked_only: bool = False,
    ) -> tuple[jax.Array, EncoderOutput]:
        read_BR = tokens_read(positions_BP, x_BLE.shape[1]) if masked_only else None
        output = self.encoder(x_BLE, mask_BL, train, read_BR)
        return self.masked_head(masked_states(output.hidden_states[-1], positions_BP, read_BR), table_VE), output


def generator_of(config: ModelConfig, width: float, compute: Compute) -> Generator:
    """Build a generator `width` times as wide as the model of `config`.

    The method `generator` of `config`, if any, returns the generator's config. Otherwise, the generator is ELECTRA's:
    it has the model's settings, feed-forwards 4 times as wide as the generator, and as many heads as possible with at
    least 64 features each, or one head. Raises ConfigError if the generator's width rounds to 0.
    """
    if (custom := getattr(config, "generator", None)) is not None:
        generator = custom(width)
        return Generator(encoder=generator.backbone(compute).encoder, masked_head=generator.masked_head(compute))
    size, heads = generator_sizes(config, width)
    make = layer_factory(compute, config.initializer_range, config.norm_epsilon)
    embedding: Any = config.backbone(compute).embedding
    ids = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    x_BLE, _ = jax.eval_shape(lambda ids: embedding.init_with_output(jax.random.key(0), ids, ids, ids, False), ids)
    return Generator(
        encoder=Encoder(
            projection=make.projection(x_BLE.shape[-1], size),
            layers=tuple(make.dense_layer(config, size, heads, 4 * size) for _ in range(config.layers)),
        ),
        # The word embeddings may be narrower than the encoder's input (MobileBERT: 128 of 512).
        masked_head=make.masked_head(config.vocab_size, embedding.word.features, config.activation),
    )


def generator_sizes(config: ModelConfig, width: float) -> tuple[int, int]:
    """Return (width, number of heads) of a generator; raises ConfigError if the width rounds to 0."""
    size = round(width * config.hidden_size)
    if size < 1:
        raise ConfigError(
            f"generator_width = {width} of hidden_size = {config.hidden_size} rounds to a generator of width 0. Use a "
            "larger generator_width."
        )
    return size, max(n for n in divisors(size) if n <= max(1, size // 64))


def generator_config(config: Any, width: float) -> Any:
    """Return the config of `generator_of`'s generator, or None if none fits; raises ConfigError for a width of 0."""
    if (custom := getattr(config, "generator", None)) is not None:
        return custom(width)
    if type(config) not in (Bert, Electra, SqueezeBert):
        return None
    size, heads = generator_sizes(config, width)
    shared = {f.name: getattr(config, f.name) for f in dataclasses.fields(Electra) if hasattr(config, f.name)}
    sizes = {"hidden_size": size, "heads": heads, "feed_forward_size": 4 * size}
    embedding = {"embedding_size": getattr(config, "embedding_size", config.hidden_size)}
    return Electra(**{**shared, **sizes, **embedding, "kind": "electra"})


class ReplacedDetection(nn.Module):
    """A generator and a discriminator that share one embedding (ELECTRA, Clark et al. 2020, §2, §3.2).

    The discriminator's parameters have the same names as in `Pretraining`.
    """

    embedding: nn.Module
    encoder: nn.Module
    replaced_head: nn.Module
    generator: Generator

    def generate(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        attention_mask: jax.Array,
        positions_BP: jax.Array,
        train: bool = False,
        masked_only: bool = False,
    ) -> tuple[jax.Array, EncoderOutput]:
        """Run the generator on masked ids (B,L); returns its logits (B,P,V) at `positions_BP` and its EncoderOutput."""
        x_BLE = self.embedding(input_ids, token_type_ids, attention_mask, train)
        table_VE = self.embedding.word.embedding
        return self.generator(x_BLE, attention_mask, positions_BP, table_VE, train, masked_only)

    def discriminate(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, train: bool = False
    ) -> tuple[jax.Array, EncoderOutput]:
        """Run the discriminator on ids (B,L); returns logits (B,L), above 0 for replaced tokens, and EncoderOutput."""
        x_BLE = self.embedding(input_ids, token_type_ids, attention_mask, train)
        output = self.encoder(x_BLE, attention_mask, train)
        return self.replaced_head(output.hidden_states[-1]), output

    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, positions_BP: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Run generator and discriminator on one batch, to initialise their parameters; returns the logits of both."""
        logits_BPV, _ = self.generate(input_ids, token_type_ids, attention_mask, positions_BP)
        logits_BL, _ = self.discriminate(input_ids, token_type_ids, attention_mask)
        return logits_BPV, logits_BL


def replaced_head(config: ModelConfig, compute: Compute) -> ReplacedHead:
    """Build the head, as wide as the model, that predicts which tokens were replaced."""
    make = layer_factory(compute, config.initializer_range, config.norm_epsilon)
    return ReplacedHead(
        dense=make.dense(config.hidden_size, "model", "pooled"),
        output=logit(),
        activation=ACTIVATIONS[config.activation],
    )


def replaced_detection(config: ModelConfig, compute: Compute, generator_width: float) -> ReplacedDetection:
    """Build a generator and a discriminator, without the pooler, which replaced token detection would not train."""
    embedding, encoder, _ = config.backbone(compute)
    return ReplacedDetection(
        embedding=embedding,
        encoder=encoder,
        replaced_head=replaced_head(config, compute),
        generator=generator_of(config, generator_width, compute),
    )
