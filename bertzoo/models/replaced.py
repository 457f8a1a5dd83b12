"""A model under replaced token detection: its generator fills the blanks, and it tells which tokens were there."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.models.compute import ACTIVATIONS, Compute
from bertzoo.models.generator import Generator, generator_of
from bertzoo.models.parts import ModelConfig, leaves
from bertzoo.nn import Dense, EncoderOutput, ReplacedHead


class ReplacedDetection(nn.Module):
    """A generator and a discriminator on one embedding, its tables, norm and dropout (ELECTRA, Clark et al. 2020, §2,
    §3.2). The discriminator's parameters have the names that they have under the masked language model.
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
    ) -> tuple[jax.Array, EncoderOutput]:
        """The generator: masked ids (B,L) -> logits (B,P,V) at the positions, and what its encoder gives."""
        x_BLE = self.embedding(input_ids, token_type_ids, attention_mask, train)
        return self.generator(x_BLE, attention_mask, positions_BP, self.embedding.word.embedding, train)

    def discriminate(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, train: bool = False
    ) -> tuple[jax.Array, EncoderOutput]:
        """The discriminator: ids (B,L) -> logits (B,L) of replacement, and what its encoder gives."""
        x_BLE = self.embedding(input_ids, token_type_ids, attention_mask, train)
        output = self.encoder(x_BLE, attention_mask, train)
        return self.replaced_head(output.hidden_states[-1]), output

    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, positions_BP: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Both on the same ids, which is enough to initialise them."""
        logits_BPV, _ = self.generate(input_ids, token_type_ids, attention_mask, positions_BP)
        logits_BL, _ = self.discriminate(input_ids, token_type_ids, attention_mask)
        return logits_BPV, logits_BL


def replaced_head(config: ModelConfig, compute: Compute) -> ReplacedHead:
    """The discriminator's head for a model."""
    make = leaves(compute, config.initializer_range, config.norm_epsilon)
    return ReplacedHead(
        dense=make.dense(config.hidden_size, "model", "pooled"),
        output=Dense(
            features=(1,),
            axes=("pooled", "classes"),
            kernel_init=nn.initializers.glorot_uniform(),  # as the reference, which leaves TF's default
            dtype=jnp.dtype("float32"),
        ),
        activation=ACTIVATIONS[config.activation],
    )


def replaced_detection(config: ModelConfig, compute: Compute, generator_width: float) -> ReplacedDetection:
    """A model as the discriminator beside its generator; a pooler, which nothing would train, is left out."""
    embedding, encoder, _ = config.backbone(compute)
    return ReplacedDetection(
        embedding=embedding,
        encoder=encoder,
        replaced_head=replaced_head(config, compute),
        generator=generator_of(config, generator_width, compute),
    )
