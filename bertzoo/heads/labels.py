"""Heads for labels: classes, sets of classes or a number of a text, and tags of its words; with their loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
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
    classification_head,
    keep_pooler,
    pool,
)
from bertzoo.models.compute import Activation, Compute
from bertzoo.models.parts import Encoded
from bertzoo.train.step import Batch, Metrics, Params, Sums

Problem = Literal["regression", "single_label_classification", "multi_label_classification"]
TERM = "task"  # the name of the one loss term
TEACHER = "teacher"  # in a batch: a teacher's logits for each row
CLASS_WEIGHT = "class_weight"  # in a batch: the weight of each of C labels in a row's loss, (B,C)


class SequenceClassifier(Encoding):
    """A backbone with a head on the pooled first token or, with `pooling` = "mean", on the mean of all states."""

    classifier: nn.Module
    pooling: str = "first"

    @property
    def reads_first(self) -> bool:
        return self.pooling == "first"

    def pool(self, encoded: Encoded, mask_BL: jax.Array) -> jax.Array:
        return pool(self.pooling, encoded.hidden_states[-1], encoded.pooled, mask_BL, jax.lax.Precision.HIGHEST)

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> jax.Array:
        return self.classifier(pooled_BD, train)


class TokenClassifier(Encoding):
    """A backbone with a head on every token."""

    token_classifier: nn.Module

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> jax.Array:
        return self.token_classifier(last_BLD, train)


@dataclass(frozen=True, kw_only=True)
class SequenceClassification(HeadConfig):
    """Config of a head that classifies a sequence or, with one label, predicts a number; `labels` names the logits."""

    module: ClassVar[type] = SequenceClassifier
    parameters: ClassVar[tuple[str, ...]] = ("classifier",)
    pipeline: ClassVar[str | None] = "text-classification"
    distillable: ClassVar[bool] = True

    kind: Literal["sequence_classification"] = "sequence_classification"
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    # activation of a dense layer before the output layer, as wide as the model; "none" omits the dense layer
    hidden: Activation | Literal["none"] = "none"
    input_dropout: float = 0.0  # dropout rate before the dense layer
    dropout: float = 0.1
    # "regression", "single_label_classification" or "multi_label_classification"; None if unknown
    problem_type: Problem | None = None
    # least probability of each label: the likeliest label that reaches it is predicted or, with several labels, all
    # that do. None: the likeliest label, or those above 0.5
    thresholds: tuple[float, ...] | None = None
    pooler: bool = True
    # what the head reads: the pooled "first" token, or the "mean" of the tokens' states
    pooling: Literal["first", "mean"] = "first"

    def __post_init__(self):
        super().__post_init__()
        if self.thresholds is not None and (self.task_kind == "regression" or len(self.thresholds) != len(self.labels)):
            raise ConfigError(
                f"thresholds = {list(self.thresholds)} are not a probability for each of the labels "
                f"{', '.join(self.labels)}. Correct or remove them."
            )
        if self.hidden == "none" and self.input_dropout:
            raise ConfigError(
                f'input_dropout = {self.input_dropout} needs a hidden layer, but hidden = "none". Set hidden to an '
                "activation, or remove input_dropout."
            )

    @property
    def task_kind(self) -> str:
        if self.problem_type == "multi_label_classification":
            return "multi_label"
        return "regression" if self.problem_type == "regression" or len(self.labels) == 1 else "classification"

    @property
    def probabilities(self) -> str:
        return {"classification": "softmax", "multi_label": "sigmoid", "regression": "none"}[self.task_kind]

    def build(self, model: Any, compute: Compute) -> SequenceClassifier:
        backbone = keep_pooler(model.backbone(compute), self.pooler)
        sizes = len(self.labels), self.dropout, self.hidden, self.input_dropout
        return SequenceClassifier(*backbone, classification_head(model, compute, *sizes), self.pooling)

    def objective(self, module: Any, **options: Any) -> "LabelledObjective":
        return LabelledObjective(model=module, problem=PROBLEMS[self.task_kind], **options)

    def convert_outputs(self, outputs: Arrays) -> Arrays:
        """Return `logits`, computed from `probabilities` if a file has these."""
        if "probabilities" not in outputs:
            return outputs
        shares, least = outputs["probabilities"], np.finfo(np.float32).tiny
        logits = np.log(np.maximum(shares, least))
        return {"logits": logits - np.log(np.maximum(1 - shares, least)) if self.probabilities == "sigmoid" else logits}

    @staticmethod
    def twin(Encoding: Any, Part: Any, torch: Any) -> tuple[Any, ...]:
        class SequenceClassifier(Encoding):
            def head(self, x, pooled, inputs):
                if self.pooling == "mean":
                    weight = inputs["attention_mask"][..., None].to(x.dtype)
                    pooled = (x * weight).sum(1) / weight.sum(1)
                return {"logits": self.classifier(pooled)}

        return (SequenceClassifier,)

    @staticmethod
    def graph(module: Any, params: Any, make: GraphLayers) -> "Logits":
        return logits_graph(module.classifier, params["classifier"], module.pooling, make)

    @staticmethod
    def result(description: Mapping[str, Any], limits: tuple[float, float] | None) -> str:
        head, problem = description["head"], description["head"].get("problem_type")
        if problem == "regression" or len(head["labels"]) == 1:
            limits_text = f", limited to {limits[0]:g} to {limits[1]:g}" if limits else ""
            scale = float(description["source"].get("scale", 1))
            return f"`logits` (1,1) times {scale:g} is the number{limits_text}; no softmax."
        several = problem == "multi_label_classification"
        function = "the sigmoid of each gives the probability" if several else "their softmax gives the probabilities"
        outputs = f"`logits` (1,{len(head['labels'])}); {function} of the labels in this order: {_ordered(head)}."
        return f"{outputs}{threshold_rule(head)}"


@dataclass(frozen=True, kw_only=True)
class TokenClassification(HeadConfig):
    """Config of a head that classifies every token; `labels` names the classes in the order of the logits."""

    module: ClassVar[type] = TokenClassifier
    parameters: ClassVar[tuple[str, ...]] = ("token_classifier",)
    pipeline: ClassVar[str | None] = "token-classification"
    form: ClassVar[Literal["question", "text", "any"]] = "text"
    task_kind: ClassVar[str] = "tokens"

    kind: Literal["token_classification"] = "token_classification"
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    # activation of a dense layer before the output layer, as in `SequenceClassification`
    hidden: Activation | Literal["none"] = "none"
    dropout: float = 0.1
    pooler: bool = True

    def build(self, model: Any, compute: Compute) -> TokenClassifier:
        head = classification_head(model, compute, len(self.labels), self.dropout, self.hidden)
        return TokenClassifier(*keep_pooler(model.backbone(compute), self.pooler), head)

    def objective(self, module: Any, **options: Any) -> "LabelledObjective":
        return LabelledObjective(model=module, **options)

    @staticmethod
    def twin(Encoding: Any, Part: Any, torch: Any) -> tuple[Any, ...]:
        class TokenClassifier(Encoding):
            def head(self, x, pooled, inputs):
                return {"logits": self.token_classifier(x)}

        return (TokenClassifier,)

    @staticmethod
    def graph(module: Any, params: Any, make: GraphLayers) -> "Logits":
        return logits_graph(module.token_classifier, params["token_classifier"], "tokens", make)

    @staticmethod
    def result(description: Mapping[str, Any], limits: tuple[float, float] | None) -> str:
        head = description["head"]
        return (
            f"`logits` (1,length,{len(head['labels'])}); the softmax over the last axis gives the probabilities of "
            f"the tags in this order: {_ordered(head)}. A word has the tag of its first token."
        )


# The problem of a head and its loss, by the kind of the task.
PROBLEMS: dict[str, Problem] = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
    "tokens": "single_label_classification",
    "entities": "single_label_classification",
}


@dataclass(frozen=True)
class LabelledObjective(HeadObjective):
    """The loss of a model with a task head: cross-entropy of classes or, for a regression, the squared error.

    A batch has `label`, (B,) or (B,L), and weights of the same shape: `row_weight` (B,) or `label_weight` (B,L).
    With problem = "multi_label_classification", `label` is (B,C), 1 or 0 for each of C labels. A row's loss is then the
    mean of C sigmoid cross-entropies, as in transformers. `class_weight` (B,C), if there is one, multiplies them.
    A batch may also have `teacher` (B,C), a teacher's logits for C classes. The target is then
    alpha · label + (1 - alpha) · the teacher's probabilities or number (SqueezeBERT, Iandola et al. 2020, §4.2.2).
    """

    problem: Problem = "single_label_classification"
    alpha: float = 1.0
    # weighted "mean", or "sum" over the batch, as in ELECTRA's code, which clips the gradient of the sum
    reduction: Literal["mean", "sum"] = "mean"

    def weights(self, batch: Batch) -> Sums:
        return {TERM: jnp.float32(1) if self.reduction == "sum" else jnp.sum(_weights(batch))}

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        return self.losses(self.logits(params, batch, key), batch)

    def losses(self, logits: jax.Array, batch: Batch) -> tuple[Sums, Metrics]:
        """Return what a call returns, from the model's logits."""
        labels, weights, right = batch["label"], _weights(batch), None
        match self.problem:
            case "regression":
                target = self._target(labels.astype(jnp.float32), batch, lambda output: output[..., 0])
                losses = jnp.square(logits[..., 0] - target)
            case "multi_label_classification":
                target = self._target(labels.astype(jnp.float32), batch, jax.nn.sigmoid)
                losses = optax.sigmoid_binary_cross_entropy(logits, target)
                losses = jnp.mean(losses * batch[CLASS_WEIGHT] if CLASS_WEIGHT in batch else losses, axis=-1)
                right = jnp.all((logits > 0) == (labels > 0), axis=-1)
            case _:
                target = self._target(jax.nn.one_hot(labels, logits.shape[-1]), batch, jax.nn.softmax)
                losses = optax.softmax_cross_entropy(logits, target)
                right = jnp.argmax(logits, axis=-1) == labels
        metrics = {} if right is None else {f"{TERM}_accuracy": (jnp.sum(right * weights), jnp.sum(weights))}
        total = jnp.sum(losses * weights)
        return {TERM: total}, {f"{TERM}_loss": (total, jnp.sum(weights)), **metrics}

    def logits(self, params: Params, batch: Batch, key: jax.Array | None) -> jax.Array:
        """Return logits in float32 for C classes, (B,C) or (B,L,C); without a key there is no dropout."""
        return cast(jax.Array, apply_model(self.model, params, batch, key, method="logits"))

    def predict(self, params: Params, batch: Batch) -> dict[str, jax.Array]:
        """Return `logits` as the method `logits` does, without dropout."""
        return {"logits": self.logits(params, batch, None)}

    def _target(self, label: jax.Array, batch: Batch, predict: Callable[[jax.Array], jax.Array]) -> jax.Array:
        """Return alpha · label + (1 - alpha) · predict(teacher's logits); without a teacher, return the label."""
        if TEACHER not in batch:
            return label
        return self.alpha * label + (1 - self.alpha) * predict(batch[TEACHER])


def _weights(batch: Batch) -> jax.Array:
    return batch["label_weight"] if "label_weight" in batch else batch["row_weight"]


class Logits(struct.PyTreeNode):
    """Head of the export graph with the output `logits`: output(norm(activation(dense(x))))."""

    dense: Any  # or None, as norm
    output: Any
    activation: Callable | None = struct.field(pytree_node=False)
    # "first" gives logits (C) of the pooled first token, "mean" of the mean of the tokens' states. "tokens" gives C
    # logits for each token (L,C), "token" gives one logit for each token (L). "span" gives `start_logits` (L) and
    # `end_logits` (L)
    of: str = struct.field(pytree_node=False)
    norm: Any = None

    def __call__(self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Any, inputs: Inputs) -> Arrays:
        x = pooled(x_RD) if self.of == "first" else x_RD
        x = pool(self.of, x_RD, x_RD[0], mask_L)[None] if self.of == "mean" else x
        if self.dense is not None and self.activation is not None:
            x = self.activation(self.dense(x))
        if self.norm is not None:
            x = self.norm(x)
        y = self.output(x)
        if self.of == "span":
            return {"start_logits": y[:, 0], "end_logits": y[:, 1]}
        return {"logits": y if self.of == "tokens" else y.reshape(-1)}


def logits_graph(module: Any, params: Any, of: str, make: GraphLayers) -> Logits:
    """Return the export graph of a head with an output layer and perhaps a dense layer before it. of: as in Logits."""
    dense = None if module.dense is None else make.affine(module.dense, params["dense"])
    norm = make.norm(module.norm, params["norm"]) if "norm" in params else None
    activation = None if dense is None else make.activation(module.activation)
    output = make.affine(module.output, params["output"])
    return Logits(dense=dense, norm=norm, output=output, activation=activation, of=of)


def _ordered(head: Mapping[str, Any]) -> str:
    return ", ".join(f"`{label}`" for label in head["labels"])


def threshold_rule(head: Mapping[str, Any]) -> str:
    """Return a sentence for app developers, after a space, on the thresholds in a file's JSON; "" without any."""
    if not (values := head.get("thresholds")):
        return ""
    named = ", ".join(f"`{label}` {value:.4g}" for label, value in zip(head["labels"], values, strict=True))
    several = head.get("problem_type") == "multi_label_classification"
    choice = "all labels" if several else "the likeliest label, or none, of those"
    return f" Show {choice} whose probability is at least its threshold (`head.thresholds` in the JSON): {named}."
