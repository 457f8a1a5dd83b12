"""Base class of head configs, and functions that initialise and apply a model."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.models.compute import ACTIVATIONS, Compute
from bertzoo.models.parts import Backbone, Encoded, OnBackbone, Pretraining, check_sizes, layer_factory
from bertzoo.models.replaced import ReplacedDetection
from bertzoo.nn import ClassificationHead, Dropout
from bertzoo.nn.parameter import init_shapes
from bertzoo.train.step import Batch, Params, Sums

TYPES = "token_type_ids"
FAR = 1e9  # subtracted from padding before a maximum
Pooled = Callable[[jax.Array], jax.Array]
Inputs = Mapping[str, jax.Array]
Arrays = dict[str, Any]  # outputs by name


class GraphLayers(NamedTuple):
    """Makers of the export graph's layers, from Linen modules and their parameters."""

    affine: Callable[[Any, Any], Any]  # of a dense module and its parameters
    linear: Callable[[Any, Any], Any]  # of a kernel (I,O) and a bias (O)
    norm: Callable[[Any, Any], Any]  # of a norm and its parameters
    activation: Callable[[Callable], Callable]  # the graph's function for a Linen module's


class HeadConfig:
    """Base class of the configs of heads; its attributes and methods are the interface of a head for other packages."""

    kind: str  # the head's name in configs and files
    pooler: Any  # whether the model keeps its pooler, if any
    module: ClassVar[type]  # class of the Linen modules that `build` returns
    labels: tuple[str, ...] = ()  # names of the classes, in the order of the logits
    parameters: ClassVar[tuple[str, ...]] = ()  # first names in the paths of the head's parameters
    pipeline: ClassVar[str | None] = None  # the Hugging Face Hub's task, or None
    # what an example holds: "question" and text, "text", or "any", a text or a pair
    form: ClassVar[Literal["question", "text", "any"]] = "any"
    inputs: ClassVar[tuple[str, ...]] = ()  # inputs besides ids, mask and a model's token types
    task_kind: str | None = None  # kind of the tasks for which the head is fine-tuned (`tasks.task.Kind`), or None
    distillable: ClassVar[bool] = False  # whether a teacher's outputs can be targets too
    # function from outputs to the results that an app shows, "softmax", "sigmoid" or "none"; "" if the outputs refer to
    # tokens, so that no file can take a text
    probabilities: str = ""
    shortest: int = 0  # fewest tokens of a sequence in a file of variable length
    answer_options: ClassVar[dict[str, Any]] = {}  # fields of `tasks.squad_tasks.SquadOptions` that the head decides

    def __post_init__(self) -> None:
        """Raise ConfigError for a field with a wrong value; by default, for a number outside of its range."""
        check_sizes(self)

    def objective(self, module: Any, **options: Any) -> Any:
        """Return the objective with which the head is fine-tuned; options: its fields, such as `reduction`."""
        raise NotImplementedError(f"the head {self.kind} is not fine-tuned on tasks")

    @staticmethod
    def name_outputs(output: Any) -> Arrays:
        """Return a model's outputs for rows by the names that exported files have."""
        return {"logits": output.logits}

    @staticmethod
    def graph(module: Any, params: Any, make: GraphLayers) -> Any:
        """Return the head of the export graph, which maps states (R,D) of computed tokens to outputs by name."""
        raise NotImplementedError(f"{type(module).__name__} has no export graph. Define `graph` in its head's config.")

    @staticmethod
    def twin(Encoding: Any, Part: Any, torch: Any) -> tuple[Any, ...]:
        """Return the PyTorch classes of the head's module and of its layers, under the same names.

        Their source goes into modeling_bertzoo.py, which defines `Encoding` and `Part`. An Encoding defines `head`,
        and `exported` too if a file has other outputs.
        """
        return ()

    def convert_outputs(self, outputs: Arrays) -> Arrays:
        """Convert an exported file's outputs to those of the objective's `predict`."""
        return outputs

    @staticmethod
    def unrounded(module: Any) -> Any:
        """Return the module without the rounding of its outputs to integers."""
        return module

    @staticmethod
    def result(description: Mapping[str, Any], limits: tuple[float, float] | None) -> str:
        """Return a sentence for app developers on a file's outputs, from its metadata and the task's limits, if any."""
        raise NotImplementedError


class TaskOutput(NamedTuple):
    """The fields of Encoded and the head's logits: (B,C), (B,L) or (B,L,C) for C classes, or None without a head."""

    hidden_states: tuple[jax.Array, ...]
    attentions: tuple[jax.Array, ...]
    pooled: jax.Array
    logits: jax.Array | None


class Encoding(OnBackbone):
    """A backbone without a head; subclasses add a head."""

    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, train: bool = False
    ) -> TaskOutput:
        encoded = self.encode(input_ids, token_type_ids, attention_mask, train)
        return TaskOutput(*encoded, self._read(encoded, attention_mask, train))

    def logits(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, train: bool = False
    ) -> jax.Array | None:
        """Return only the logits, or None without a head; with `reads_first`, the last layer computes one token."""
        first_BR = jnp.zeros((len(input_ids), 1), jnp.int32) if self.reads_first else None
        encoded = self.encode(input_ids, token_type_ids, attention_mask, train, first_BR)
        return self._read(encoded, attention_mask, train)

    def _read(self, encoded: Encoded, attention_mask: jax.Array, train: bool) -> jax.Array | None:
        return self.head(encoded.hidden_states[-1], self.pool(encoded, attention_mask), train)

    def pool(self, encoded: Encoded, mask_BL: jax.Array) -> jax.Array:
        """Return the vector (B,D) of each text."""
        return encoded.pooled

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> jax.Array | None:
        return None


def keep_pooler(backbone: Backbone, pooler: bool) -> Backbone:
    """Return the backbone, without its pooler if `pooler` is false."""
    return backbone if pooler else backbone._replace(pooler=None)


def classification_head(
    model: Any, compute: Compute, classes: int, dropout: float, hidden: str = "none", input_dropout: float = 0.0
) -> ClassificationHead:
    """Build a head of one dense layer after dropout or, with the activation `hidden`, with a layer before it."""
    make = layer_factory(compute, model.initializer_range, model.norm_epsilon)
    dense, norm = (None, None) if hidden == "none" else model.hidden_layer(compute)
    return ClassificationHead(
        dense=dense,
        activation=ACTIVATIONS["gelu" if hidden == "none" else hidden],
        input_dropout=Dropout(input_dropout),
        output=make.dense(classes, "pooled", "classes"),
        dropout=Dropout(dropout),
        norm=norm,
    )


def pool(
    pooling: str, x_BLD: jax.Array, first_BD: jax.Array, mask_BL: jax.Array, precision: jax.lax.Precision | None = None
) -> jax.Array:
    """Reduce the states of a text's tokens to one vector (B,D); padding has mask 0.

    mean: the mean. weighted_mean: the mean with weights 1 to L (Muennighoff 2022, §3). max: the maximum of each
    dimension. first: `first_BD`. precision: of the products on accelerators, which round to bfloat16 by default.
    """
    if pooling == "first":
        return first_BD
    weight_BL = mask_BL.astype(x_BLD.dtype)
    if pooling == "max":
        return jnp.max(x_BLD - FAR * (1 - weight_BL)[..., None], axis=-2)
    if pooling == "weighted_mean":
        weight_BL = weight_BL * (1 + jnp.arange(mask_BL.shape[-1])).astype(x_BLD.dtype)
    total_BD = jnp.matmul(weight_BL[..., None, :], x_BLD, precision=precision)[..., 0, :]
    return total_BD / jnp.sum(weight_BL, -1, keepdims=True)


def gather_rows(x_LD: jax.Array, positions_P: jax.Array) -> jax.Array:
    """Gather the rows (P,D) at `positions_P` by a product with a one-hot matrix, which every runtime supports."""
    chosen_PL = (positions_P[:, None] == jnp.arange(len(x_LD))[None]).astype(x_LD.dtype)
    return chosen_PL @ x_LD


def init_model(model: Any, key: jax.Array) -> Params:
    """Return fresh float32 parameters of a model, boxed with logical axis names."""
    ids = jnp.zeros((1, 8), jnp.int32)
    positions = (ids[:, :1],) if isinstance(model, Pretraining | ReplacedDetection) else ()
    return model.init(key, ids, ids, ids + 1, *positions)["params"]


def apply_model(model: Any, params: Params, batch: Batch, key: jax.Array | None, *more: Any, **options: Any) -> Any:
    """Return a model's output for a batch; without a key there is no dropout. more, options: of `model.apply`."""
    return model.apply(
        {"params": params},
        batch["input_ids"],
        batch["token_type_ids"],
        batch["attention_mask"],
        *more,
        train=key is not None,
        rngs=None if key is None else {"dropout": key},
        **options,
    )


def parameter_shapes(model: Any, head: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter, by path, from the configs of a model and a head; computes no values."""
    return {path: shape for path, (shape, _) in _parameters(model, head).items()}


def parameter_axes(model: Any, head: Any) -> dict[str, tuple[str, ...]]:
    """Return the logical axis names of every parameter, by path, from the configs of a model and a head."""
    return {path: axes for path, (_, axes) in _parameters(model, head).items()}


@dataclass(frozen=True)
class HeadObjective:
    """Base class of the losses of a model with its head."""

    model: Any

    def init(self, key: jax.Array) -> Params:
        return init_model(self.model, key)

    def totals(self, batch: Batch) -> Sums:
        """Return the weights of the loss terms, 0 of a term that the batch lacks, for a mean over batches."""
        return self.weights(batch)  # pyright: ignore[reportAttributeAccessIssue]


@functools.lru_cache(maxsize=16)  # a sweep calls this for each point, and a trace takes seconds
def _parameters(model: Any, head: Any) -> dict[str, tuple[tuple[int, ...], tuple[str, ...]]]:
    module = head.build(model, Compute())
    boxed = init_shapes(lambda key: init_model(module, key), jax.random.key(0))
    flat, _ = jax.tree_util.tree_flatten_with_path(boxed, is_leaf=lambda leaf: isinstance(leaf, nn.Partitioned))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): (box.value.shape, box.names) for path, box in flat}


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
