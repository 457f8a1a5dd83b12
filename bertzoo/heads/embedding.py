"""Head for a vector of a text, whose cosine with another text's vector is their similarity; with its losses.

Pooling, projection and normalisation are those of Sentence-BERT (Reimers & Gurevych 2019, §3) and of the modules
Pooling, Dense and Normalize of sentence-transformers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError
from bertzoo.heads.base import (
    FAR,
    Arrays,
    Encoding,
    GraphLayers,
    HeadConfig,
    HeadObjective,
    Inputs,
    Pooled,
    TaskOutput,
    apply_model,
    keep_pooler,
    pool,
)
from bertzoo.heads.labels import TEACHER, TERM
from bertzoo.models.compute import Compute
from bertzoo.models.parts import Encoded, layer_factory
from bertzoo.nn import Dense
from bertzoo.train.step import Batch, Metrics, Params, Sums

Pooling = Literal["mean", "first", "max", "weighted_mean"]
Output = Literal["float32", "int8", "binary"]
_BITS = np.array([128, 64, 32, 16, 8, 4, 2, 1], np.float32)
_LEAST_NORM = 1e-12  # as in torch.nn.functional.normalize


def normalise(x: jax.Array) -> jax.Array:
    """Divide vectors (…,E) by their Euclidean norms; a zero vector remains zero."""
    return x / jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(x), -1, keepdims=True), _LEAST_NORM**2))


class SentenceEncoder(Encoding):
    """A backbone whose `logits` are vectors of texts (B,E). The fields are those of SentenceEmbedding."""

    projection: Dense | None
    pooling: str
    tanh: bool
    size: int
    normalise: bool
    output: str

    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, train: bool = False
    ) -> TaskOutput:
        """Return vectors in the form `output`, and all states; `logits` returns vectors in float32."""
        outputs = super().__call__(input_ids, token_type_ids, attention_mask, train)
        return outputs._replace(logits=round_vectors(cast(jax.Array, outputs.logits), self.output))

    @property
    def reads_first(self) -> bool:
        return self.pooling == "first"

    def pool(self, encoded: Encoded, mask_BL: jax.Array) -> jax.Array:
        states, highest = encoded.hidden_states[-1].astype(jnp.float32), jax.lax.Precision.HIGHEST
        if self.pooling == "max":  # jnp.max has the gradient NaN if XLA computes the states twice, with other rounding
            positions_B1D = jnp.argmax(states - FAR * (1.0 - mask_BL[..., None]), axis=1, keepdims=True)
            return jnp.take_along_axis(states, positions_B1D, axis=1)[:, 0]
        return pool(self.pooling, states, encoded.pooled, mask_BL, highest)

    def head(self, last_BLD: jax.Array, pooled_BD: jax.Array, train: bool) -> jax.Array:
        return finish(pooled_BD.astype(jnp.float32), self.projection, self)


def finish(x: jax.Array, projection: Callable | None, head: SentenceEncoder) -> jax.Array:
    """Return pooled vectors (…,D) after the projection, cut and normalised as `head` specifies."""
    if projection is not None:
        x = projection(x)
        x = jnp.tanh(x) if head.tanh else x
    x = x[..., : head.size] if head.size else x
    return normalise(x) if head.normalise else x


def round_vectors(x: jax.Array, output: str) -> jax.Array:
    """Return vectors (…,E) in the form `output` of SentenceEmbedding."""
    if output == "int8":
        largest = jnp.max(jnp.abs(x), -1, keepdims=True)
        return jnp.round(x * (127 / jnp.maximum(largest, _LEAST_NORM))).astype(jnp.int8)
    if output == "binary":  # a sum and not a product, whose weights a file would quantise
        bits = (x > 0).astype(jnp.float32).reshape(*x.shape[:-1], -1, len(_BITS))
        return jnp.sum(bits * _BITS, -1).astype(jnp.uint8)
    return x


@dataclass(frozen=True, kw_only=True)
class SentenceEmbedding(HeadConfig):
    """Config of a head that maps a text to a vector."""

    module: ClassVar[type] = SentenceEncoder
    parameters: ClassVar[tuple[str, ...]] = ("projection",)
    pipeline: ClassVar[str | None] = "sentence-similarity"
    form: ClassVar[Literal["question", "text", "any"]] = "text"
    task_kind: ClassVar[str] = "embedding"
    distillable: ClassVar[bool] = True
    probabilities: ClassVar[str] = "none"

    kind: Literal["embedding"] = "embedding"
    pooling: Pooling = "mean"  # of the last states
    pooler: bool = False  # whether "first" is the output of the model's pooler
    projection: int = 0  # width of a linear layer after pooling; 0: none
    activation: Literal["identity", "tanh"] = "identity"  # function after that layer
    size: int = 0  # number of dimensions of the vector, the first ones of those computed; 0: all
    normalise: bool = True  # whether vectors have length 1
    sizes: tuple[int, ...] = ()  # further sizes for which the model was trained (Matryoshka, Kusupati et al. 2022)
    # form of the vectors that a file for phones computes. "int8": round(127 · x / max |x|), whose cosine needs no
    # scale. "binary": a bit per dimension, 1 above 0, 8 in a uint8, the first one highest (as numpy.packbits does)
    output: Output = "float32"

    def __post_init__(self):
        check_range(self, "projection", "size", least=0, advice="Use 0 for none.")
        if self.pooler and self.pooling != "first":
            raise ConfigError(f"pooler = true needs pooling = 'first', not {self.pooling!r}. Remove pooler.")
        if self.activation != "identity" and not self.projection:
            raise ConfigError(f"activation = {self.activation!r} needs a projection. Set projection, or remove it.")
        if self.projection and self.size > self.projection:
            raise ConfigError(f"size = {self.size} is above projection = {self.projection}. Use a smaller size.")
        if any(size < 1 for size in self.sizes):
            raise ConfigError(f"sizes = {list(self.sizes)} has a number below 1. Remove it.")
        if self.size and any(size > self.size for size in self.sizes):
            raise ConfigError(
                f"sizes = {list(self.sizes)} has a number above size = {self.size}, which cuts vectors. Remove it."
            )

    def width(self, model: Any) -> int:
        """Return the number of dimensions of a vector."""
        return self.size or self.projection or model.hidden_size

    def build(self, model: Any, compute: Compute) -> SentenceEncoder:
        make = layer_factory(compute, model.initializer_range, model.norm_epsilon)
        for size in (self.size, *self.sizes):
            if size > (widest := self.projection or model.hidden_size):
                raise ConfigError(
                    f"a size of {size} is above the {widest} dimensions of the vector. Use a smaller one."
                )
        if self.output == "binary" and (width := self.width(model)) % len(_BITS):
            raise ConfigError(
                f"output = 'binary' packs 8 dimensions, and the vector has {width}. Set size to a multiple."
            )
        return SentenceEncoder(
            *keep_pooler(model.backbone(compute), self.pooler),
            projection=make.dense(self.projection, "pooled", "classes") if self.projection else None,
            pooling=self.pooling,
            tanh=self.activation == "tanh",
            size=self.size,
            normalise=self.normalise,
            output=self.output,
        )

    def objective(self, module: Any, **options: Any) -> "EmbeddingObjective":
        return EmbeddingObjective(model=module, **options)

    @staticmethod
    def name_outputs(output: Any) -> Arrays:
        return {"embedding": output.logits}

    @staticmethod
    def twin(Encoding: Any, Part: Any, torch: Any) -> tuple[Any, ...]:
        class SentenceEncoder(Encoding):
            """A model whose output `embedding` (B,E) is a vector of the text; the settings are those of its head."""

            def head(self, x, pooled, inputs):
                weight = inputs["attention_mask"].to(x.dtype)
                if self.pooling == "weighted_mean":
                    weight = weight * torch.arange(1, x.shape[1] + 1, device=x.device)
                if self.pooling == "first":
                    vector = pooled
                elif self.pooling == "max":
                    vector = (x - 1e9 * (1 - weight)[..., None]).amax(1)
                else:
                    vector = (weight[:, None] @ x)[:, 0] / weight.sum(-1, keepdim=True)
                if self.projection is not None:
                    vector = self.projection(vector)
                    vector = vector.tanh() if self.tanh else vector
                vector = vector[:, : self.size] if self.size else vector
                norm = (vector * vector).sum(-1, keepdim=True).sqrt().clamp(min=1e-12)
                vector = vector / norm if self.normalise else vector
                if self.output == "int8":
                    scale = 127 / vector.abs().amax(-1, keepdim=True).clamp(min=1e-12)
                    vector = (vector * scale).round().to(torch.int8)
                elif self.output == "binary":
                    bits = (vector > 0).to(torch.float32).unflatten(-1, (-1, 8))
                    places = 2.0 ** torch.arange(7, -1, -1, device=x.device)
                    vector = (bits * places).sum(-1).to(torch.uint8)
                return {"embedding": vector}

        return (SentenceEncoder,)

    @staticmethod
    def graph(module: Any, params: Any, make: GraphLayers) -> "PooledVector":
        projection = None if module.projection is None else make.affine(module.projection, params["projection"])
        return PooledVector(projection=projection, settings=module)

    @staticmethod
    def result(description: Mapping[str, Any], limits: tuple[float, float] | None) -> str:
        head = description["head"]
        names = {
            "mean": "the mean of the tokens' states",
            "weighted_mean": "the mean of the tokens' states with weights 1, 2, 3 and so on",
            "max": "the maximum of the tokens' states",
            "first": "the state of the first token",
        }
        sizes = ", ".join(str(size) for size in head.get("sizes", ()))
        shorter = f" The first {sizes} dimensions also serve alone." if sizes else ""
        form, compare = "", "the cosine"
        match head.get("output", "float32"):
            case "int8":
                form = ", as int8: 127 times the vector, divided by its largest absolute value"
                compare = "the cosine, which needs no scale; sum products in int32"
            case "binary":
                form = (
                    ", as bits: 1 where the vector is above 0, eight in a uint8, the first dimension in the highest bit"
                )
                compare = "the number of differing bits (Hamming distance): the fewer, the closer"
            case _ if head.get("normalise", True):
                form = "; its length is 1, so a dot product gives the cosine"
        return f"`embedding` comes from {names[head['pooling']]}{form}. Compare texts by {compare}.{shorter}"

    def convert_outputs(self, outputs: Arrays) -> Arrays:
        """Return float32 vectors with the same order of cosines; bits become 1 and -1."""
        vectors = np.asarray(outputs["embedding"])
        if self.output == "binary":
            vectors = 2 * np.unpackbits(vectors, axis=-1).astype(np.float32) - 1
        return {"embedding": vectors.astype(np.float32)}

    @staticmethod
    def unrounded(module: SentenceEncoder) -> SentenceEncoder:
        return module.clone(output="float32")


class PooledVector(struct.PyTreeNode):
    """Head of the export graph with the output `embedding` (E). settings: the Linen module, without its layers."""

    projection: Any
    settings: SentenceEncoder = struct.field(pytree_node=False)

    def __call__(self, x_RD: jax.Array, pooled: Pooled, mask_L: jax.Array, table_VE: Any, inputs: Inputs) -> Arrays:
        pooling = self.settings.pooling
        x = pooled(x_RD)[0] if pooling == "first" else pool(pooling, x_RD, x_RD[0], mask_L)
        project = self.projection and (lambda vector: self.projection(vector[None])[0])
        return {"embedding": round_vectors(finish(x, project, self.settings), self.settings.output)}


@dataclass(frozen=True)
class EmbeddingObjective(HeadObjective):
    """The loss of vectors: alpha · a loss on the labels + (1 - alpha) · a loss on a teacher's vectors.

    A batch holds B examples of n texts: `input_ids`, `token_type_ids` and `attention_mask` (B,n,L), `text_id` (B,n),
    equal for equal texts, and `row_weight` (B,), 0 for examples that pad the batch. The losses on labels:

    contrastive: cross-entropy of finding the second text by the first one among the second texts of the whole batch,
    over all devices, and its further texts, the hard negatives (InfoNCE, van den Oord et al. 2018;
    MultipleNegativesRankingLoss). Texts that equal a right answer are left out. With n = 1 each text is its own
    partner, with other dropout (SimCSE, Gao, Yao & Chen 2021, §3).
    cosine: squared error of the cosine of two texts against `similarity` (B,) (Reimers & Gurevych 2019, §3).
    cosent: log(1 + Σ exp((cos_i - cos_j) / temperature)) over all pairs whose similarity orders them i < j (CoSENT).

    The losses on `teacher` (B,n,E), by their weights:

    l2: mean squared difference of all numbers. directions: 1 - cosine. relations: squared difference of the cosines of
    all pairs of texts of the batch (after Tung & Mori 2019, who compare row-normalised Gram matrices of activations).
    """

    loss: Literal["contrastive", "cosine", "cosent"] = "contrastive"
    alpha: float = 1.0
    temperature: float = 0.05  # divides cosines
    symmetric: bool = False  # whether "contrastive" also finds the first text by the second one
    sizes: tuple[int, ...] = ()  # further numbers of first dimensions with losses (Kusupati et al. 2022, equation 1)
    l2: float = 0.0
    directions: float = 1.0
    relations: float = 0.0
    # number of chunks in which texts are embedded, to save memory; the loss is that of the whole batch, because the
    # backward pass computes each chunk again (gradient cache, Gao, Zhang, Han & Callan 2021)
    chunks: int = 1
    reduction: str = "mean"  # the only one; the others would depend on the batch size

    def weights(self, batch: Batch) -> Sums:
        return {TERM: jnp.sum(batch["row_weight"])}

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        weight_B = batch["row_weight"]
        if self.alpha and self.loss == "contrastive" and batch["input_ids"].shape[1] == 1:
            batch = batch | {name: jnp.repeat(array, 2, 1) for name, array in batch.items() if array.ndim > 1}
        x_BNE, total, metrics = self.embed(params, batch, key), jnp.float32(0), {}
        count = jnp.sum(weight_B)
        if self.alpha:
            for size in (None, *self.sizes):
                cut = x_BNE[..., :size]
                if self.loss == "contrastive":
                    loss, right_B = contrastive(cut, batch["text_id"], weight_B, self.temperature, self.symmetric)
                    if size is None:
                        metrics[f"{TERM}_accuracy"] = (jnp.sum(right_B * weight_B), count)
                elif self.loss == "cosine":
                    errors_B = jnp.square(_cosine(cut[:, 0], cut[:, 1]) - batch["similarity"])
                    loss = _mean(errors_B, weight_B)
                else:
                    loss = cosent(_cosine(cut[:, 0], cut[:, 1]), batch["similarity"], weight_B, self.temperature)
                total += self.alpha * loss
        if self.alpha < 1:
            total += (1 - self.alpha) * self._teacher_loss(x_BNE, batch[TEACHER].astype(jnp.float32), weight_B)
        return {TERM: total * count}, {f"{TERM}_loss": (total * count, count), **metrics}

    def embed(self, params: Params, batch: Batch, key: jax.Array | None) -> jax.Array:
        """Return the vectors (…,E) of texts (…,L)."""

        def run(chunk: Batch, key: jax.Array | None) -> jax.Array:
            flat = {name: array.reshape(-1, array.shape[-1]) for name, array in chunk.items()}
            vectors = apply_model(self.model, params, flat, key, method="logits")
            return vectors.reshape(*chunk["input_ids"].shape[:-1], -1)

        texts = {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
        rows = len(texts["input_ids"])
        if key is None or self.chunks == 1 or rows % self.chunks:  # one row, when FLOPs are counted
            return run(texts, key)
        # Chunk i has rows i, i + chunks, …, so that no row moves to another device.
        chunks = {
            name: jnp.swapaxes(x.reshape(rows // self.chunks, self.chunks, *x.shape[1:]), 0, 1)
            for name, x in texts.items()
        }
        keys = jax.random.split(key, self.chunks)
        vectors = jax.lax.map(jax.checkpoint(lambda chunk: run(*chunk)), (chunks, keys))
        return jnp.swapaxes(vectors, 0, 1).reshape(rows, *vectors.shape[2:])

    def _teacher_loss(self, x_BNE: jax.Array, teacher_BNE: jax.Array, weight_B: jax.Array) -> jax.Array:
        x_ME, weight_M = x_BNE.reshape(-1, x_BNE.shape[-1]), jnp.repeat(weight_B, x_BNE.shape[1])
        teacher_ME = teacher_BNE.reshape(-1, teacher_BNE.shape[-1])
        loss = jnp.float32(0)
        if self.l2:
            loss += self.l2 * _mean(jnp.mean(jnp.square(x_ME - teacher_ME), -1), weight_M)
        if self.directions:
            loss += self.directions * _mean(1 - _cosine(x_ME, teacher_ME), weight_M)
        if self.relations:
            weight_MM = weight_M[:, None] * weight_M
            for size in (None, *self.sizes):
                difference_MM = _cosines(x_ME[:, :size], x_ME[:, :size]) - _cosines(teacher_ME, teacher_ME)
                loss += self.relations * _mean(jnp.square(difference_MM), weight_MM)
        return loss

    def predict(self, params: Params, batch: Batch) -> dict[str, jax.Array]:
        """Return `embedding`, the vectors (B,E) of texts (B,L), without dropout."""
        return {"embedding": self.embed(params, batch, None)}


def contrastive(
    x_BNE: jax.Array, text_id_BN: jax.Array, weight_B: jax.Array, temperature: float, symmetric: bool
) -> tuple[jax.Array, jax.Array]:
    """Return the mean loss of finding the second text by the first, and (B,) whether it is the nearest."""
    rows = len(x_BNE)
    first_B, second_B = text_id_BN[:, 0], text_id_BN[:, 1]
    candidates_C = jnp.swapaxes(text_id_BN[:, 1:], 0, 1).reshape(-1)
    candidates_CE = jnp.swapaxes(x_BNE[:, 1:], 0, 1).reshape(-1, x_BNE.shape[-1])
    logits_BC = _cosines(x_BNE[:, 0], candidates_CE) / temperature
    same_BC = (candidates_C == second_B[:, None]) | (candidates_C == first_B[:, None])
    same_BC = same_BC.at[:, :rows].max(first_B == first_B[:, None])
    wrong_BC = same_BC & ~jnp.eye(rows, len(candidates_C), dtype=bool)
    answers = jnp.arange(rows)

    def losses(logits: jax.Array, excluded: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        scores = jnp.where(excluded | (weight == 0), -jnp.inf, logits)
        scores = scores.at[answers, answers].set(jnp.diagonal(logits))  # a finite loss for rows that pad the batch
        return optax.softmax_cross_entropy_with_integer_labels(scores, answers), jnp.argmax(scores, -1) == answers

    loss_B, right_B = losses(logits_BC, wrong_BC, jnp.tile(weight_B, len(candidates_C) // rows))
    if symmetric:
        loss_B = (loss_B + losses(logits_BC[:, :rows].T, wrong_BC[:, :rows].T, weight_B)[0]) / 2
    return _mean(loss_B, weight_B), right_B


def cosent(cosine_B: jax.Array, similarity_B: jax.Array, weight_B: jax.Array, temperature: float) -> jax.Array:
    """Return CoSENT's loss over the pairs of a batch; arguments as in EmbeddingObjective."""
    differences_BB = (cosine_B[:, None] - cosine_B) / temperature
    ordered_BB = (similarity_B[:, None] < similarity_B) & (weight_B[:, None] * weight_B > 0)
    exponents = jnp.where(ordered_BB, differences_BB, -jnp.inf)
    return jax.nn.logsumexp(jnp.append(exponents.reshape(-1), 0.0))


def _cosines(x_ME: jax.Array, y_NE: jax.Array) -> jax.Array:
    return jnp.matmul(normalise(x_ME), normalise(y_NE).T, precision=jax.lax.Precision.HIGHEST)


def _cosine(x_ME: jax.Array, y_ME: jax.Array) -> jax.Array:
    return jnp.sum(normalise(x_ME) * normalise(y_ME), -1)


def _mean(x: jax.Array, weight: jax.Array) -> jax.Array:
    return jnp.sum(x * weight) / jnp.maximum(jnp.sum(weight), 1e-9)
