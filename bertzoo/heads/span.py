"""The heads for an answer's first and last token, with their losses.

BERT's predicts both independently (§4.2, §4.3). ELECTRA's predicts starts, ends given a start, and whether there is an
answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from bertzoo.heads.base import (
    TYPES,
    Arrays,
    Encoding,
    GraphLayers,
    HeadConfig,
    HeadObjective,
    Inputs,
    Pooled,
    apply_model,
    classification_head,
    gather_rows,
    keep_pooler,
)
from bertzoo.heads.labels import Logits, logits_graph
from bertzoo.models.compute import ACTIVATIONS, Activation, Compute
from bertzoo.models.parts import OnBackbone, logit
from bertzoo.nn import DensePair, glorot_uniform
from bertzoo.nn.positions import take_tokens
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
            def head(self, x, pooled, inputs):
                return {"logits": self.span_head(x)}

            def exported(self, x, pooled, inputs):
                logits = self.span_head(x)
                return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}

        return (SpanFinder,)

    @staticmethod
    def graph(module: Any, params: Any, make: GraphLayers) -> Logits:
        return logits_graph(module.span_head, params["span_head"], "span", make)


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


EXCLUDED = -1000.0  # added to the logits of positions that cannot hold an answer


class PairHead(nn.Module):
    """Compute a float32 logit of each pair of states x and y: output(activation(dense(x, y))).

    x and y have shape (..., D), and their leading axes broadcast to the shape of the logits. dense: a DensePair.
    """

    dense: nn.Module
    activation: Callable[[jax.Array], jax.Array]
    output: nn.Module

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return self.output(self.activation(self.dense(x, y))).astype(jnp.float32)[..., 0]


class JointSpanHead(nn.Module):
    """Predict starts of answers, ends given a start, and "no answer" (ELECTRA's qa_tasks.py; not in the paper).

    h_t is the last state of token t. `start` maps h_t to a logit, `end` maps h_start and h_t, and `null` maps h_[CLS]
    and the mean of h_t weighted by softmax(start logits). Answers lie in the second segment, or are [CLS].
    """

    start: nn.Module
    end: nn.Module
    null: nn.Module
    beam: int

    def __call__(
        self, hidden_BLD: jax.Array, second_BL: jax.Array, starts_BK: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Return the last four fields of JointSpanOutput.

        second_BL: 1 at tokens of the second segment. starts_BK: start positions, by default the `beam` likeliest.
        """
        length = hidden_BLD.shape[1]
        excluded_BL = EXCLUDED * (1.0 - jnp.maximum(second_BL, jnp.arange(length) == 0).astype(jnp.float32))
        start_BL = self.start(hidden_BLD)[..., 0].astype(jnp.float32) + excluded_BL
        if starts_BK is None:
            _, starts_BK = jax.lax.top_k(start_BL, min(self.beam, length))
        first_BKD = take_tokens(hidden_BLD, starts_BK)
        end_BKL = self.end(first_BKD[:, :, None], hidden_BLD[:, None]) + excluded_BL[:, None]
        expected_BD = jnp.einsum("bl,bld->bd", jax.nn.softmax(start_BL), hidden_BLD.astype(jnp.float32))
        null_B = self.null(hidden_BLD[:, 0].astype(jnp.float32), expected_BD)
        return start_BL, starts_BK, end_BKL, null_B


def span_candidates(
    start_BL: jax.Array, starts_BK: jax.Array, end_BKL: jax.Array, null_B: jax.Array
) -> dict[str, jax.Array]:
    """Return candidate answers, as named arrays, from the logits of a JointSpanHead.

    `starts` (B,K) have log-probabilities `start_scores`. The K likeliest `ends` of each start (B,K,K) have
    log-probabilities `end_scores`. `null_score` (B,) is above 0 for no answer.
    """
    scores_BL = jax.nn.log_softmax(start_BL)
    end_scores_BKK, ends_BKK = jax.lax.top_k(jax.nn.log_softmax(end_BKL), starts_BK.shape[1])
    return {
        "starts": starts_BK,
        "start_scores": jnp.take_along_axis(scores_BL, starts_BK, axis=1),
        "ends": ends_BKK,
        "end_scores": end_scores_BKK,
        "null_score": null_B,
    }


class JointSpanOutput(NamedTuple):
    """Fields of Encoded, and logits of an answer's start (B,L), of its end given each of K `starts` (B,K,L), and of no
    answer (B,), above 0 if there is none. 1000 is subtracted from the logits of positions that cannot hold an answer.
    """

    hidden_states: tuple[jax.Array, ...]
    attentions: tuple[jax.Array, ...]
    pooled: jax.Array
    start_logits: jax.Array
    starts: jax.Array
    end_logits: jax.Array
    null_logits: jax.Array


class JointSpanFinder(OnBackbone):
    """A backbone with logits for an answer's start, for its end given each of K starts, and for no answer."""

    joint_span_head: nn.Module

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        attention_mask: jax.Array,
        train: bool = False,
        starts_BK: jax.Array | None = None,
    ) -> JointSpanOutput:
        """Return all logits; the end logits are conditioned on `starts_BK`, by default the likeliest starts."""
        encoded = self.encode(input_ids, token_type_ids, attention_mask, train)
        second_BL = token_type_ids * attention_mask
        return JointSpanOutput(*encoded, *self.joint_span_head(encoded.hidden_states[-1], second_BL, starts_BK))


@dataclass(frozen=True, kw_only=True)
class JointSpanExtraction(AnswerHead):
    """Config of a head that finds an answer's first token, its last token given the first, or no answer (ELECTRA)."""

    module: ClassVar[type] = JointSpanFinder
    parameters: ClassVar[tuple[str, ...]] = ("joint_span_head",)
    inputs: ClassVar[tuple[str, ...]] = (TYPES,)
    pooler: ClassVar[bool] = False
    best_answer: ClassVar[str] = (
        "the start k and end with the largest sum of the log-softmax of `start_logits` at `starts`[k] and of "
        "`end_logits`[k]"
    )
    no_answer: ClassVar[str] = "`null_logit` is above"

    kind: Literal["joint_span"] = "joint_span"
    hidden_size: int = 512  # width of the layers that read pairs of tokens
    beam: int = 20  # number of likely starts whose ends are predicted

    @property
    def shortest(self) -> int:
        """Fewest tokens of a sequence: the number of starts that the head compares."""
        return self.beam

    @property
    def answer_options(self) -> dict[str, Any]:
        return {"joint": True, "candidates": self.beam}

    def build(self, model: Any, compute: Compute) -> JointSpanFinder:
        def pair() -> PairHead:
            dense = DensePair(self.hidden_size, ("model", "pooled"), glorot_uniform, compute.jax_dtype)
            # Always the exact gelu, whatever the model's activation is.
            return PairHead(dense=dense, activation=ACTIVATIONS["gelu"], output=logit())

        head = JointSpanHead(start=logit(), end=pair(), null=pair(), beam=self.beam)
        return JointSpanFinder(*keep_pooler(model.backbone(compute), False), head)

    def objective(self, module: Any, **options: Any) -> "JointSpanObjective":
        return JointSpanObjective(module, **options)

    @staticmethod
    def name_outputs(output: Any) -> Arrays:
        names = ("start_logits", "starts", "end_logits")
        return {name: getattr(output, name) for name in names} | {"null_logit": output.null_logits[:, None]}

    @staticmethod
    def twin(Encoding: Any, Part: Any, torch: Any) -> tuple[Any, ...]:
        class DensePair(Part):
            tensors = ("kernel", "bias")

            def forward(self, x, y):
                first, second = self.kernel.chunk(2)
                return x @ first + y @ second + self.bias

        class PairHead(Part):
            def forward(self, x, y):
                return self.output(self.activation(self.dense(x, y)))[..., 0]

        class JointSpanHead(Part):
            """Return start_logits (B,L), N likely starts (B,N), end_logits (B,N,L) and null_logits (B,)."""

            def forward(self, x, second, starts):
                excluded = EXCLUDED * torch.nn.functional.pad((1 - second.to(x.dtype))[:, 1:], (1, 0))
                start_logits = self.start(x)[..., 0] + excluded
                count = self.beam if self.beam <= x.shape[1] else x.shape[1]  # `min` fails if lengths are symbols
                chosen = start_logits.topk(count).indices if starts is None else starts
                first = x.gather(1, chosen[:, :, None].expand(-1, -1, x.shape[2]))
                end_logits = self.end(first[:, :, None], x[:, None]) + excluded[:, None]
                null_logits = self.null(x[:, 0], (start_logits.softmax(-1)[:, None] @ x)[:, 0])
                logits = {"start_logits": start_logits, "end_logits": end_logits, "null_logits": null_logits}
                return logits | {"starts": chosen}

        class JointSpanFinder(Encoding):
            def forward(self, input_ids, token_type_ids, attention_mask, starts=None):
                outputs = super().forward(input_ids, token_type_ids, attention_mask)
                second = token_type_ids * attention_mask
                return outputs | self.joint_span_head(outputs["hidden_states"][-1], second, starts)

            def exported(self, x, pooled, inputs):
                logits = self.joint_span_head(x, inputs["token_type_ids"] * inputs["attention_mask"], None)
                null = {"starts": logits["starts"].int(), "null_logit": logits["null_logits"][:, None]}
                return {name: logits[name] for name in ("start_logits", "end_logits")} | null

        return (DensePair, PairHead, JointSpanHead, JointSpanFinder)

    @staticmethod
    def graph(module: Any, params: Any, make: GraphLayers) -> "JointSpanLogits":
        head, weights = module.joint_span_head, params["joint_span_head"]

        def pair(pair_head: Any, params: Any) -> Pair:
            kernel, bias = (np.asarray(params["dense"][name]) for name in ("kernel", "bias"))
            width = len(kernel) // 2
            return Pair(
                dense_x=make.linear(kernel[:width], bias),
                dense_y=make.linear(kernel[width:], np.zeros_like(bias)),
                output=make.affine(pair_head.output, params["output"]),
                activation=make.activation(pair_head.activation),
            )

        return JointSpanLogits(
            start=make.affine(head.start, weights["start"]),
            end=pair(head.end, weights["end"]),
            null=pair(head.null, weights["null"]),
            beam=head.beam,
        )

    def convert_outputs(self, outputs: Arrays) -> Arrays:
        """Return scores of candidate answers (`span_candidates`)."""
        names = ("start_logits", "starts", "end_logits", "null_logit")
        start_BL, starts_BK, end_BKL, null_B1 = (jnp.asarray(outputs[name]) for name in names)
        return jax.device_get(span_candidates(start_BL, starts_BK, end_BKL, null_B1[:, 0]))


@dataclass(frozen=True)
class JointSpanObjective(HeadObjective):
    """The loss of SpanObjective, with the end conditioned on the true start, plus a loss on whether there is an answer.

    The added loss is `null_weight` times a binary cross-entropy, also reduced by `reduction`. ELECTRA's qa_tasks.py
    adds it for SQuAD 1.1 too.
    """

    null_weight: float = 0.5
    reduction: Reduction = "mean"

    def weights(self, batch: Batch) -> Sums:
        return dict.fromkeys(("span", "null"), reduced_rows(batch, self.reduction))

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        output = apply_model(self.model, params, batch, key, starts_BK=batch["start"][:, None])
        metrics = span_metrics(output.start_logits, output.end_logits[:, 0], batch)
        weight_B, null_B = batch["row_weight"], 1.0 - batch["answerable"]
        losses_B = optax.sigmoid_binary_cross_entropy(output.null_logits, null_B)
        right_B = (output.null_logits > 0) == (null_B > 0)
        for name, value_B in (("null_loss", losses_B), ("null_accuracy", right_B)):
            metrics[name] = jnp.sum(value_B * weight_B), jnp.sum(weight_B)
        return {"span": metrics["span_loss"][0], "null": self.null_weight * metrics["null_loss"][0]}, metrics

    def predict(self, params: Params, batch: Batch) -> dict[str, jax.Array]:
        """Return the candidate spans for decoding (`span_candidates`)."""
        output = apply_model(self.model, params, batch, None)
        return span_candidates(output.start_logits, output.starts, output.end_logits, output.null_logits)


class Pair(struct.PyTreeNode):
    """Map states x (K,1,D) and y (L,D) to logits of all pairs, (K,L), with a dense layer on [x, y] split in two."""

    dense_x: Any
    dense_y: Any
    output: Any
    activation: Callable = struct.field(pytree_node=False)

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return self.output(self.activation(self.dense_x(x) + self.dense_y(y)))[..., 0]


class JointSpanLogits(struct.PyTreeNode):
    """Head of the export graph, like JointSpanHead.

    Outputs: `start_logits` (L), the K likeliest `starts` (K), `end_logits` (K,L) given each start, `null_logit` (1).
    """

    start: Any
    end: Pair
    null: Pair
    beam: int = struct.field(pytree_node=False)

    def __call__(self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Any, inputs: Inputs) -> Arrays:
        length, types_L = len(x_RD), inputs[TYPES].astype(jnp.float32)
        first_L = (jnp.arange(length) == 0).astype(jnp.float32)
        excluded_L = EXCLUDED * (1.0 - jnp.maximum(types_L * mask_L, first_L))
        start_L = self.start(x_RD)[:, 0] + excluded_L
        _, starts_K = jax.lax.top_k(start_L, min(self.beam, length))
        end_KL = self.end(gather_rows(x_RD, starts_K)[:, None], x_RD) + excluded_L
        expected_D = jax.nn.softmax(start_L) @ x_RD
        null = self.null(x_RD[:1], expected_D[None])
        return {"start_logits": start_L, "starts": starts_K, "end_logits": end_KL, "null_logit": null}


def align_starts(
    actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return a row's outputs of a file (`actual`) and its model (`expected`), with end logits for the same starts.

    Outputs without `starts` are returned unchanged. File and model may choose or order `starts` differently: only the
    end logits of common ones are returned, in the model's order, after `drop_excluded`. Raises ValueError if there are
    none.
    """
    actual, expected = dict(actual), dict(expected)
    if "starts" not in expected:
        return actual, expected
    starts = actual.pop("starts").tolist()
    shared = [start in starts for start in expected["starts"].tolist()]
    order = [starts.index(start) for start in expected.pop("starts").tolist() if start in starts]
    if not order:
        raise ValueError("the file and the model have no common start position of an answer")
    actual["end_logits"], expected["end_logits"] = actual["end_logits"][order], expected["end_logits"][shared]
    for name in ("start_logits", "end_logits"):
        actual[name], expected[name] = drop_excluded(actual[name], expected[name])
    return actual, expected


def drop_excluded(actual: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace the logits of answers that a model excludes, in a file's logits (`actual`) and the model's (`expected`).

    They are about -1,000, which would hide the errors of other logits. In `expected` they become 0. In `actual` they
    become 0 if the file excludes the answer, too, and otherwise 1,000, which counts as an error.
    """
    excluded = expected < EXCLUDED / 2
    replacements = np.where(actual < EXCLUDED / 2, 0, -EXCLUDED)
    return np.where(excluded, replacements, actual), np.where(excluded, 0, expected)
