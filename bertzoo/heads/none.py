"""No head: the model's hidden states or, in an exported file, an embedding of the row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import struct

from bertzoo.heads.base import Arrays, Encoding, HeadConfig, Inputs, Pooled, keep_pooler
from bertzoo.models.compute import Compute


@dataclass(frozen=True, kw_only=True)
class NoHead(HeadConfig):
    """Config of a model without a head; pooler: whether to keep the model's pooler, if any."""

    module: ClassVar[type] = Encoding
    pipeline: ClassVar[str | None] = "feature-extraction"
    probabilities: ClassVar[str] = "none"

    kind: Literal["none"] = "none"
    pooler: bool = True

    def build(self, model: Any, compute: Compute) -> Encoding:
        return Encoding(*keep_pooler(model.backbone(compute), self.pooler))

    @staticmethod
    def result(description: Mapping[str, Any], limits: tuple[float, float] | None) -> str:
        pooling = {"mean": "the mean of the tokens' states", "first": "the pooled first token"}
        return f"`embedding` is {pooling[description['pooling']]}; compare texts by the cosine. No softmax."


class MeanEmbedding(struct.PyTreeNode):
    """Head with the output `embedding` (D), the mean of the states of all tokens except padding."""

    more_inputs: ClassVar[tuple[str, ...]] = ()
    reads_first: ClassVar[bool] = False

    def __call__(self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Any, inputs: Inputs) -> Arrays:
        return {"embedding": (mask_L[None] @ x_RD)[0] / jnp.sum(mask_L)}


class FirstEmbedding(struct.PyTreeNode):
    """Head with the output `embedding` (D), the pooled state of the first token."""

    more_inputs: ClassVar[tuple[str, ...]] = ()
    reads_first: ClassVar[bool] = True

    def __call__(self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Any, inputs: Inputs) -> Arrays:
        return {"embedding": pooled(x_RD)[0]}


POOLINGS = {"mean": MeanEmbedding(), "first": FirstEmbedding()}
