"""The heads of pretraining: masked language model, perhaps with a sentence-pair head, and ELECTRA's discriminator.

`objectives.masked` and `objectives.replaced` have their losses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from bertzoo.heads.base import Arrays, Encoding, GraphLayers, HeadConfig, Inputs, Pooled, gather_rows, keep_pooler
from bertzoo.heads.labels import Logits, logits_graph
from bertzoo.models.compute import Compute
from bertzoo.models.parts import Pretraining, pretraining
from bertzoo.models.replaced import replaced_head


@dataclass(frozen=True, kw_only=True)
class MaskedLanguageModel(HeadConfig):
    """Config of the masked language model head; sentence: whether to add the two-way head of NSP or SOP."""

    module: ClassVar[type] = Pretraining
    parameters: ClassVar[tuple[str, ...]] = ("masked_head", "sentence_head")
    pipeline: ClassVar[str | None] = "fill-mask"
    inputs: ClassVar[tuple[str, ...]] = ("masked_positions",)

    kind: Literal["masked"] = "masked"
    sentence: bool = False
    pooler: bool = True

    def build(self, model: Any, compute: Compute) -> Pretraining:
        module = pretraining(model, compute, self.sentence)
        return module if self.pooler else module.clone(pooler=None)

    @staticmethod
    def name_outputs(output: Any) -> Arrays:
        logits = {"masked_logits": output.masked_logits}
        return logits if output.sentence_logits is None else logits | {"sentence_logits": output.sentence_logits}

    @staticmethod
    def twin(Encoding: Any, Part: Any, torch: Any) -> tuple[Any, ...]:
        class Pretraining(Encoding):
            def head(self, x, pooled, inputs):
                outputs = {"masked_logits": self.masked_head(x, self.embedding.word.embedding)}
                if self.sentence_head is not None:
                    outputs["sentence_logits"] = self.sentence_head(pooled)
                return outputs

            def exported(self, x, pooled, inputs):
                return self.head(x.index_select(1, inputs["masked_positions"][0]), pooled, inputs)

        return (Pretraining,)

    @staticmethod
    def graph(module: Any, params: Any, make: GraphLayers) -> "MaskedLogits":
        head, weights, sentence = module.masked_head, params["masked_head"], module.sentence_head
        return MaskedLogits(
            dense=make.affine(head.dense, weights["dense"]),
            norm=make.norm(head.norm, weights["norm"]),
            bias=np.asarray(weights["bias"]),
            extra=None if head.extra is None else np.asarray(weights["extra"]["kernel"]),
            sentence=None if sentence is None else make.affine(sentence, params["sentence_head"]),
            activation=make.activation(head.activation),
        )

    @staticmethod
    def result(description: Mapping[str, Any], limits: tuple[float, float] | None) -> str:
        vocab_size = description["tokenizer"]["entries"]
        first = f"the softmax of the first {vocab_size:,} `masked_logits` gives the probabilities of the token ids."
        if not description["head"].get("sentence"):
            return first
        classes = {"sop": ("B follows A", "A follows B"), "nsp": ("B follows A", "B is from another text")}
        true, false = classes.get(description["source"].get("sentence"), ("B continues A", "it does not"))
        return (
            f"{first} For a pair, the softmax of `sentence_logits` (1,2) gives the probabilities that {true} and that "
            f"{false}."
        )


class MaskedLogits(struct.PyTreeNode):
    """Masked-language-model head of the export graph, whose output weights are the word embeddings.

    Outputs: `masked_logits` (P,V) at `masked_positions` and, with `sentence`, `sentence_logits` (2).
    """

    dense: Any
    norm: Any
    bias: Any
    extra: Any  # (D-E,V), for the columns beyond the word embeddings' width E, or None
    sentence: Any
    activation: Callable = struct.field(pytree_node=False)

    def __call__(self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Any, inputs: Inputs) -> Arrays:
        z_PE = self.norm(self.activation(self.dense(gather_rows(x_RD, inputs["masked_positions"]))))
        width = table_VE.shape[1]
        logits_PV = jnp.einsum("pe,ve->pv", z_PE[:, :width], table_VE) + self.bias
        if self.extra is not None:
            logits_PV = logits_PV + z_PE[:, width:] @ self.extra
        logits = {"masked_logits": logits_PV}
        if self.sentence is not None:
            logits["sentence_logits"] = self.sentence(pooled(x_RD))[0]
        return logits


class Discriminator(Encoding):
    """A backbone with one logit per token (B,L), above 0 if the token was likely replaced (ELECTRA §2)."""

    replaced_head: nn.Module

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> jax.Array:
        return self.replaced_head(last_BLD)


@dataclass(frozen=True, kw_only=True)
class ReplacedTokens(HeadConfig):
    """Config of a head that predicts which tokens were replaced: ELECTRA's discriminator, without a pooler."""

    module: ClassVar[type] = Discriminator
    parameters: ClassVar[tuple[str, ...]] = ("replaced_head",)
    pooler: ClassVar[bool] = False

    kind: Literal["replaced"] = "replaced"

    def build(self, model: Any, compute: Compute) -> Discriminator:
        return Discriminator(*keep_pooler(model.backbone(compute), False), replaced_head(model, compute))

    @staticmethod
    def twin(Encoding: Any, Part: Any, torch: Any) -> tuple[Any, ...]:
        class Discriminator(Encoding):
            def head(self, x, pooled, inputs):
                return {"logits": self.replaced_head(x)}

        return (Discriminator,)

    @staticmethod
    def graph(module: Any, params: Any, make: GraphLayers) -> Logits:
        return logits_graph(module.replaced_head, params["replaced_head"], "token", make)

    @staticmethod
    def result(description: Mapping[str, Any], limits: tuple[float, float] | None) -> str:
        return "`logits` (1,length); a token whose logit is above 0 (sigmoid above 0.5) was replaced."
