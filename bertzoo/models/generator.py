"""Build the generator for a model that learns to detect replaced tokens (ELECTRA, Clark et al. 2020, §3.2)."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.core.config import divisors
from bertzoo.core.errors import ConfigError
from bertzoo.models.bert import Bert
from bertzoo.models.compute import Compute
from bertzoo.models.electra import Electra
from bertzoo.models.parts import ModelConfig, layer_factory
from bertzoo.models.squeezebert import SqueezeBert
from bertzoo.nn import Encoder, EncoderOutput
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
        return self.masked_head(masked_states(output.hidden_states[-1], positions_BP, read_BR), None, table_VE), output


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
            layers=make.layers(config, size, heads, 4 * size),
        ),
        # The word table may be narrower than the embedding's output (MobileBERT: 128 of 512).
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
