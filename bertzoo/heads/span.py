"""The head for an answer's first and last token, predicted independently (BERT §4.2, §4.3), with its loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct

from bertzoo.heads.base import (
    Arrays,
    Encoding,
    GraphLayers,
    HeadConfig,
    HeadObjective,
    Inputs,
    Pooled,
    apply_model,
    classification_head,
    keep_pooler,
)
from bertzoo.heads.labels import Logits, logits_graph
from bertzoo.models.compute import Activation, Compute
from bertzoo.models.parts import check_sizes
from bertzoo.train.step import Batch, Metrics, Params, Sums

Reduction = Literal["mean", "sum"]


class SpanFinder(Encoding):
    """A backbone with two logits per token, (B,L,2): for an answer's first token and for its last (BERT §4.2)."""

    span_head: nn.Module

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> jax.Array:
        return self.span_head(last_BLD, train)


class AnswerHead(HeadConfig):
    """Base class of the configs of heads that find the answer to a question in a text."""

    pipeline: ClassVar[str | None] = "question-answering"
    form: ClassVar[Literal["question", "text", "any"]] = "question"
    task_kind: ClassVar[str] = "span"
    best_answer: ClassVar[str]  # phrase on the answer's start and end, for `result`
    no_answer: ClassVar[str]  # phrase on when there is no answer

    @classmethod
    def result(cls, description: Mapping[str, Any], limits: tuple[float, float] | None) -> str:
        decoding = description["decoding"]
        text = f"inside the text, with the end at most {decoding['longest'] - 1} tokens behind the start"
        nulls = f"; there is no answer if {cls.no_answer} {decoding['threshold']:g}" if decoding["nulls"] else ""
        return f"{cls.best_answer}, {text}, are the first and last token of the answer{nulls}."


@dataclass(frozen=True, kw_only=True)
class SpanExtraction(AnswerHead):
    """Config of a head that finds the first and last token of an answer, as in extractive question answering."""

    module: ClassVar[type] = SpanFinder
    parameters: ClassVar[tuple[str, ...]] = ("span_head",)
    best_answer: ClassVar[str] = "the start and end with the largest sum of `start_logits` and `end_logits` (1,length)"
    no_answer: ClassVar[str] = "the first token's sum is higher by more than"

    kind: Literal["span"] = "span"
    hidden: Activation | Literal["none"] = "none"  # as in `SequenceClassification`
    dropout: float = 0.0
    pooler: bool = True

    def __post_init__(self):
        check_sizes(self)

    def build(self, model: Any, compute: Compute) -> SpanFinder:
        head = classification_head(model, compute, 2, self.dropout, self.hidden)
        return SpanFinder(*keep_pooler(model.backbone(compute), self.pooler), head)

    def objective(self, module: Any, **options: Any) -> "SpanObjective":
        return SpanObjective(module, **options)

    @staticmethod
    def name_outputs(output: Any) -> Arrays:
        return {"start_logits": output.logits[..., 0], "end_logits": output.logits[..., 1]}

    @staticmethod
    def twin(Encoding: Any, Part: Any, torch: Any) -> tuple[Any, ...]:
        class SpanFinder(Encoding):
            def head(self, x, pooled):
                return {"logits": self.span_head(x)}

            def exported(self, x, pooled, inputs):
                logits = self.span_head(x)
                return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}

        return (SpanFinder,)

    @staticmethod
    def graph(module: Any, params: Any, make: GraphLayers) -> "SpanLogits":
        return SpanLogits(logits=logits_graph(module.span_head, params["span_head"], "tokens", make))


class SpanLogits(struct.PyTreeNode):
    """Head of the export graph with the outputs `start_logits` and `end_logits`, (L) each."""

    logits: Logits

    more_inputs: ClassVar[tuple[str, ...]] = ()
    reads_first: ClassVar[bool] = False

    def __call__(self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Any, inputs: Inputs) -> Arrays:
        logits_LC = self.logits(x_RD, pooled, mask_L, table_VE, inputs)["logits"]
        return {"start_logits": logits_LC[:, 0], "end_logits": logits_LC[:, 1]}


@dataclass(frozen=True)
class SpanObjective(HeadObjective):
    """Average of the cross-entropies of an answer's start and end, reduced over rows (as in BERT's run_squad.py).

    The softmax covers every position, including question and padding, as in run_squad.py. In a row without the answer,
    both labels are 0, the position of [CLS]. reduction: "mean" over rows, or "sum", as in ELECTRA's code, which clips
    the sum's gradient.
    """

    reduction: Reduction = "mean"

    def weights(self, batch: Batch) -> Sums:
        return {"span": reduced_rows(batch, self.reduction)}

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        start_BL, end_BL = jnp.moveaxis(apply_model(self.model, params, batch, key).logits, -1, 0)
        metrics = span_metrics(start_BL, end_BL, batch)
        return {"span": metrics["span_loss"][0]}, metrics

    def predict(self, params: Params, batch: Batch) -> dict[str, jax.Array]:
        """Return `start_logits` and `end_logits` (B,L) for decoding."""
        return SpanExtraction.name_outputs(apply_model(self.model, params, batch, None))


def reduced_rows(batch: Batch, reduction: Reduction) -> jax.Array:
    """Return the denominator of a loss: the number of rows that count, or 1 for a sum."""
    return jnp.float32(1) if reduction == "sum" else jnp.sum(batch["row_weight"])


def span_metrics(start_BL: jax.Array, end_BL: jax.Array, batch: Batch) -> Metrics:
    """Return `span_loss`, the mean of both cross-entropies, `start_accuracy` and `end_accuracy` as (sum, weight)."""
    weight_B = batch["row_weight"]
    total = jnp.sum(weight_B)
    metrics, losses_B = {}, jnp.zeros_like(weight_B)
    for name, logits_BL in (("start", start_BL), ("end", end_BL)):
        losses_B += 0.5 * optax.softmax_cross_entropy_with_integer_labels(logits_BL, batch[name])
        right_B = jnp.argmax(logits_BL, axis=-1) == batch[name]
        metrics[f"{name}_accuracy"] = jnp.sum(right_B * weight_B), total
    return {"span_loss": (jnp.sum(losses_B * weight_B), total), **metrics}
