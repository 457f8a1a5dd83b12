"""The head of ELECTRA's discriminator, which finds replaced tokens; `objectives.replaced` has its loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax

from bertzoo.heads.base import Encoding, GraphLayers, HeadConfig, keep_pooler
from bertzoo.heads.labels import Logits, logits_graph
from bertzoo.models.compute import Compute
from bertzoo.models.replaced import replaced_head


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
            def head(self, x, pooled):
                return {"logits": self.replaced_head(x)}

        return (Discriminator,)

    @staticmethod
    def graph(module: Any, params: Any, make: GraphLayers) -> Logits:
        return logits_graph(module.replaced_head, params["replaced_head"], "token", make)

    @staticmethod
    def result(description: Mapping[str, Any], limits: tuple[float, float] | None) -> str:
        return "`logits` (1,length); a token whose logit is above 0 (sigmoid above 0.5) was replaced."
