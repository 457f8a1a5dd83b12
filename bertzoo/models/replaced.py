"""Replaced token detection: a generator fills masked positions, and a discriminator finds the replaced tokens."""

import flax.linen as nn
import jax

from bertzoo.models.compute import ACTIVATIONS, Compute
from bertzoo.models.generator import Generator, generator_of
from bertzoo.models.parts import ModelConfig, layer_factory, logit
from bertzoo.nn import EncoderOutput, ReplacedHead


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
