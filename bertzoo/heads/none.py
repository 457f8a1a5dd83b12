"""No head: the model's hidden states."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bertzoo.heads.base import Encoding, HeadConfig, keep_pooler
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
