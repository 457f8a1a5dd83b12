"""Several heads on one backbone, each with labels of its own: their outputs by name, and the weighted sum of losses."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import struct

from bertzoo.core.errors import ConfigError
from bertzoo.heads.base import (
    Arrays,
    Encoding,
    GraphLayers,
    HeadConfig,
    HeadObjective,
    Inputs,
    Pooled,
    apply_model,
    keep_pooler,
)
from bertzoo.heads.labels import TERM, LabelledObjective, Logits, SequenceClassification, TokenClassification
from bertzoo.models.compute import Compute
from bertzoo.train.step import Batch, Metrics, Params, Sums


class MultiTaskEncoder(Encoding):
    """A backbone with several heads; `logits` are those of each head, by its name."""

    heads: tuple[Encoding, ...]  # models whose own backbones are None
    names: tuple[str, ...]

    @property
    def reads_first(self) -> bool:
        return all(head.reads_first for head in self.heads)

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> Any:
        return {name: head.head(last_BLD, pooled_BD, train) for name, head in zip(self.names, self.heads, strict=True)}


@dataclass(frozen=True, kw_only=True)
class NamedHead:
    """A head, its name in outputs, and the weight of its loss."""

    name: str
    weight: float = 1.0
    head: SequenceClassification | TokenClassification


@dataclass(frozen=True, kw_only=True)
class MultiTaskHead(HeadConfig):
    """Config of several heads on one backbone. The output `logits` of the head NAME is `NAME_logits`."""

    module: ClassVar[type] = MultiTaskEncoder

    kind: Literal["multi_task"] = "multi_task"
    heads: tuple[NamedHead, ...] = ()

    def __post_init__(self):
        check_names([named.name for named in self.heads])

    @property
    def task_kind(self) -> str | None:
        return self.kind if self.heads else None

    @property
    def pooler(self) -> bool:
        return any(named.head.pooler for named in self.heads)

    def build(self, model: Any, compute: Compute) -> MultiTaskEncoder:
        bare: Any = {"embedding": None, "encoder": None, "pooler": None}
        heads = tuple(named.head.build(model, compute).clone(**bare) for named in self.heads)
        backbone = keep_pooler(model.backbone(compute), self.pooler)
        return MultiTaskEncoder(*backbone, heads, tuple(named.name for named in self.heads))

    def objective(self, module: Any, **options: Any) -> "MultiTaskObjective":
        heads = tuple((named.name, named.weight, named.head.objective(None)) for named in self.heads)
        return MultiTaskObjective(module, heads, **options)

    @staticmethod
    def name_outputs(output: Any) -> Arrays:
        return {f"{name}_logits": logits for name, logits in output.logits.items()}

    @staticmethod
    def twin(Encoding: Any, Part: Any, torch: Any) -> tuple[Any, ...]:
        class MultiTaskEncoder(Encoding):
            def head(self, x, pooled, inputs):
                heads = zip(self.names, self.row("heads"), strict=True)
                return {f"{name}_logits": head.head(x, pooled, inputs)["logits"] for name, head in heads}

        return (MultiTaskEncoder,)

    @staticmethod
    def graph(module: Any, params: Any, make: GraphLayers) -> "MultiTaskLogits":
        configs = {config.module: config for config in (SequenceClassification, TokenClassification)}
        heads = (configs[type(head)].graph(head, params[f"heads_{i}"], make) for i, head in enumerate(module.heads))
        return MultiTaskLogits(heads=tuple(heads), names=module.names)

    @staticmethod
    def result(description: Mapping[str, Any], limits: tuple[float, float] | None) -> str:
        configs = {config.kind: config for config in (SequenceClassification, TokenClassification)}
        return " ".join(
            configs[named["head"]["kind"]]
            .result({**description, "head": named["head"]}, None)
            .replace("`logits`", f"`{named['name']}_logits`")
            for named in description["head"]["heads"]
        )


@dataclass(frozen=True)
class MultiTaskObjective(HeadObjective):
    """The sum of the losses of several heads on one backbone, each times its weight.

    A batch has each head's labels, weights and so on as `NAME/label`, `NAME/row_weight`.
    """

    heads: tuple[tuple[str, float, LabelledObjective], ...]  # (name, weight, objective, whose model is None)
    reduction: Literal["mean", "sum"] = "mean"

    def totals(self, batch: Batch) -> Sums:
        return {
            name: replace(objective, reduction=self.reduction).weights(_of_head(name, batch))[TERM]
            for name, _, objective in self.heads
        }

    def weights(self, batch: Batch) -> Sums:
        # A batch may lack a head's labels.
        return {name: jnp.where(total > 0, total, 1.0) for name, total in self.totals(batch).items()}

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        logits, sums, metrics = apply_model(self.model, params, batch, key).logits, {}, {}
        for name, weight, objective in self.heads:
            total, head_metrics = objective.losses(logits[name], _of_head(name, batch))
            sums[name] = weight * total[TERM]
            metrics |= {f"{name}{metric.removeprefix(TERM)}": value for metric, value in head_metrics.items()}
        return sums, metrics

    def predict(self, params: Params, batch: Batch) -> dict[str, jax.Array]:
        """Return the logits of each head by the names that exported files have, without dropout."""
        return MultiTaskHead.name_outputs(apply_model(self.model, params, batch, None))


class MultiTaskLogits(struct.PyTreeNode):
    """Heads of the export graph, whose names begin the names of their outputs."""

    heads: tuple[Logits, ...]
    names: tuple[str, ...] = struct.field(pytree_node=False)

    def __call__(self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Any, inputs: Inputs) -> Arrays:
        return {
            f"{name}_logits": head(x_RD, pooled, mask_L, table_VE, inputs)["logits"]
            for name, head in zip(self.names, self.heads, strict=True)
        }


def check_names(names: list[str]) -> None:
    """Raise ConfigError if the names of heads are not different words of letters, digits and _."""
    for index, name in enumerate(names):
        if not (name.isascii() and name.isidentifier()):
            raise ConfigError(f"name = {name!r} of a head is no word. Use letters, digits and _.")
        if name in names[:index]:
            raise ConfigError(f"two heads have the name {name!r}. Rename one of them.")


def _of_head(name: str, batch: Batch) -> dict[str, jax.Array]:
    return {key.removeprefix(f"{name}/"): array for key, array in batch.items() if key.startswith(f"{name}/")}
