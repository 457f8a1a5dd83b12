"""Losses that transfer knowledge from a teacher to a student: distances between layers, and distillation.

The losses are MobileBERT's (Sun et al. 2020, https://arxiv.org/abs/2004.02984, §3.5, §3.6), here for any two models.

In the distances, hidden states T and S are (B,L,D), attention maps (B,H,L,M) of probabilities; `weights_BL` is 0 for
tokens that do not count. Distances are summed over tokens, and no gradient reaches the teacher.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError
from bertzoo.models import Compute, Model, Pretraining, pretraining
from bertzoo.models.partial import LayerOutput, layer_outputs, stack
from bertzoo.nn import Dense
from bertzoo.nn.parameter import init_shapes
from bertzoo.nn.positions import take_tokens
from bertzoo.objectives.masked import MaskedObjective
from bertzoo.train.step import Batch, Metrics, Params, Sums

EPSILON = 1e-12  # of the normalisation, as in the authors' code
TINY = 1.2e-38  # smallest normal float32; keeps the logarithm of a probability of 0 finite


def feature_map(teacher_BLD: jax.Array, student_BLD: jax.Array, weights_BL: jax.Array) -> jax.Array:
    """Return Σ_bl w · (1/D) Σ_d (LN(T) − LN(S))²: squared difference of the normalised states (§3.5, Eq. 2).

    LN(x) = (x − μ(x)) / √(σ²(x) + EPSILON), without scale and bias.
    """
    teacher_BLD, student_BLD = _pair(teacher_BLD, student_BLD)
    difference_BLD = _normalised(teacher_BLD) - _normalised(student_BLD)
    return jnp.sum(weights_BL * jnp.mean(difference_BLD**2, axis=-1))


def mean(teacher_BLD: jax.Array, student_BLD: jax.Array, weights_BL: jax.Array) -> jax.Array:
    """Return Σ_bl w · (μ(T) − μ(S))², where μ is the mean over a token's features (§3.5)."""
    teacher_BLD, student_BLD = _pair(teacher_BLD, student_BLD)
    return jnp.sum(weights_BL * (jnp.mean(teacher_BLD, axis=-1) - jnp.mean(student_BLD, axis=-1)) ** 2)


def variance(teacher_BLD: jax.Array, student_BLD: jax.Array, weights_BL: jax.Array) -> jax.Array:
    """Return Σ_bl w · |σ²(T) − σ²(S)|, where σ² is the variance over a token's features (§3.5)."""
    teacher_BLD, student_BLD = _pair(teacher_BLD, student_BLD)
    return jnp.sum(weights_BL * jnp.abs(jnp.var(teacher_BLD, axis=-1) - jnp.var(student_BLD, axis=-1)))


def attention(teacher_BHLM: jax.Array, student_BHLM: jax.Array, weights_BL: jax.Array) -> jax.Array:
    """Return Σ_bl w · (1/H) Σ_h KL(T ‖ S), where KL = −Σ_m T·log S − (−Σ_m T·log T) (§3.5, Eq. 3).

    The teacher's entropy is constant, so the gradient is that of the cross-entropy. If the numbers of heads differ, the
    maps are averaged over heads first. Raises ConfigError if the numbers of keys differ.
    """
    teacher_BHLM, student_BHLM = _pair(teacher_BHLM, student_BHLM)
    if teacher_BHLM.shape[3] != student_BHLM.shape[3]:
        raise ConfigError(
            f"in rows of {student_BHLM.shape[2]} tokens, the teacher attends to {teacher_BHLM.shape[3]} keys and the "
            f"student to {student_BHLM.shape[3]}, so their maps cannot be compared. Set knowledge.attention = 0, or "
            "give both models the same stride."
        )
    if teacher_BHLM.shape[1] != student_BHLM.shape[1]:
        teacher_BHLM, student_BHLM = (jnp.mean(x, axis=1, keepdims=True) for x in (teacher_BHLM, student_BHLM))
    cross_BHL, entropy_BHL = _cross_entropy(teacher_BHLM, student_BHLM), _cross_entropy(teacher_BHLM, teacher_BHLM)
    return jnp.sum(weights_BL * jnp.mean(cross_BHL - entropy_BHL, axis=1))


def soft_cross_entropy(teacher_BPV: jax.Array, student_BPV: jax.Array) -> jax.Array:
    """Return (B,P): −Σ_v softmax(T)·log softmax(S) of logits T and S (pre-training distillation, §3.5)."""
    teacher_BPV, student_BPV = _pair(teacher_BPV, student_BPV)
    return -jnp.sum(jax.nn.softmax(teacher_BPV) * jax.nn.log_softmax(student_BPV), axis=-1)


def _pair(teacher: jax.Array, student: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.lax.stop_gradient(teacher).astype(jnp.float32), student.astype(jnp.float32)


def _normalised(x: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + EPSILON)


def _cross_entropy(p: jax.Array, q: jax.Array) -> jax.Array:
    return -jnp.sum(p * jnp.log(jnp.maximum(q, TINY)), axis=-1)


PROJECTIONS = "projections"  # key in the student's parameters; dropped when a run is loaded or converted
DISCREPANCIES = {"feature": feature_map, "mean": mean, "variance": variance, "attention": attention}


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Weights of the distances between layers, and settings of distillation and of copied parameters.

    The default weights are those of MobileBERT's authors (run_pretraining.py).
    """

    feature: float = 100.0  # weight of the distance between feature maps; 0 leaves it out
    mean: float = 5000.0  # weight of the distance between the feature maps' means; 0 leaves it out
    variance: float = 5.0  # weight of the distance between the feature maps' variances; 0 leaves it out
    attention: float = 1.0  # weight of the divergence between attention maps; 0 leaves it out
    pads: bool = False  # count padding in these distances, as the authors' code does
    # share of the true token in the labels (the paper's α, §3.5); the rest is the teacher's prediction; 1: no teacher
    ground_truth: float = 0.5
    # for each student layer, the teacher layer (from 1) that it learns from; required if their numbers differ
    layers: tuple[int, ...] = ()
    # copy the teacher's embedding and heads where kind and shape agree; "none": yes, unless transfer.kind is auxiliary
    copy: bool | None = None
    dropout: bool = False  # apply the student's dropout while it learns from the teacher
    dtype: Literal["float32", "bfloat16"] = "bfloat16"  # number format of the teacher

    def __post_init__(self):
        check_range(self, *DISCREPANCIES, least=0, advice="Use 0 to leave this loss out.")
        check_range(self, "ground_truth", least=0, most=1, advice="Use 1 for no distillation.")

    @property
    def weights(self) -> dict[str, float]:
        """{name of a distance: its weight}, for weights above 0."""
        return {name: getattr(self, name) for name in DISCREPANCIES if getattr(self, name)}


class Teacher(NamedTuple):
    """The frozen model that a student learns from.

    The student's layers are compared with those of `model`. If `predicts` is true, a loss also needs the teacher's
    distribution over masked tokens. The distribution comes from `generator` (ELECTRA's) or, without a generator, from
    the masked language model head of `model`.
    """

    model: Pretraining
    generator: Pretraining | None
    predicts: bool

    def shapes(self, stacked: bool = True) -> Any:
        """Return the boxed shapes of the parameters that the losses use: {"model": …} or {"model": …, "generator": …}.

        stacked: whether the parameters of identical layers are stacked.
        """
        ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)

        def shapes_of(model: Pretraining, head: bool) -> Any:
            params = init_shapes(model.init, jax.random.key(0), ids, ids, ids, ids)["params"]
            params = {name: params[name] for name in ("embedding", "encoder", *["masked_head"] * head)}
            return stack(params, model.encoder.layers) if stacked else params  # type: ignore[attr-defined]

        if self.generator is None:
            return {"model": shapes_of(self.model, self.predicts)}
        return {"model": shapes_of(self.model, False), "generator": shapes_of(self.generator, True)}

    def logits(self, frozen: Params, batch: Batch, last_BLD: jax.Array | None) -> jax.Array:
        """Return logits (B,P,V) at the masked positions, from `model`'s last hidden states if there is no generator."""
        model, params = self.model, frozen["model"]
        hidden_BLD: Any = last_BLD
        if self.generator is not None:
            model, params = self.generator, frozen["generator"]
            hidden_BLD = layer_outputs(model, params, batch, {depth(model)}, None)[depth(model)].hidden
        head, table_VE = params["masked_head"], params["embedding"]["word"]["embedding"]
        hidden_BPD = take_tokens(hidden_BLD, batch["masked_positions"])
        logits: Any = model.masked_head.apply({"params": head}, hidden_BPD, table_VE)
        return logits


def depth(model: Pretraining) -> int:
    """Return a model's number of layers."""
    return len(model.encoder.layers)  # type: ignore[attr-defined]


def build_teacher(model: Model, generator: Model | None, predicts: bool, compute: Compute) -> Teacher:
    """Build a teacher's modules from the configs of its model and generator.

    predicts: whether a loss needs the teacher's predictions. If not, the generator is left out.
    """

    def build(config: Model) -> Pretraining:
        return pretraining(config, compute, sentence=False).clone(pooler=None)

    return Teacher(build(model), None if generator is None or not predicts else build(generator), predicts)


@dataclass(frozen=True)
class TransferObjective:
    """Distances between layers of a student and its teacher and, if `masked`, distillation (§3.5, §3.6).

    Each distance in `knowledge.weights` has a loss term: (weight / N) · Σ over `pairs` of the mean distance per token.
    N is the student's number of layers. `masked` adds the masked language model loss and the loss of the sentence head.
    The masked labels are α · truth + (1 − α) · the teacher's distribution, with α = knowledge.ground_truth.
    """

    student: MaskedObjective
    teacher: Teacher
    knowledge: Knowledge
    pairs: tuple[tuple[int, int], ...]  # (student's layer, teacher's layer), counted from 1
    masked: bool
    # a learnt projection from the student's `width` to the teacher's, with parameters for every layer of the student
    projection: Dense | None = None
    width: int = 0

    def init(self, key: jax.Array) -> Params:
        params = self.student.init(key)
        if self.projection is None:
            return params
        state, layers = jnp.zeros((1, self.width)), range(1, depth(self.student.model) + 1)
        projections = {
            _path(layer): self.projection.init(jax.random.fold_in(key, layer), state)["params"] for layer in layers
        }
        return {**params, PROJECTIONS: projections}

    def weights(self, batch: Batch) -> Sums:
        weights = dict.fromkeys(self._discrepancies(), jnp.sum(self._tokens(batch)))
        if not self.masked:
            return weights
        truth = self.student.weights(batch)
        if self._distils:
            weights["distillation"] = truth["mlm"]
        return weights | {term: total for term, total in truth.items() if term != "mlm" or self.knowledge.ground_truth}

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        key = key if self.knowledge.dropout else None
        student_layers, sums, metrics, logits = self._student(params, batch, key)
        layers = {layer for _, layer in self.pairs} if self._discrepancies() else set()
        if self._distils and self.teacher.generator is None:
            layers.add(depth(self.teacher.model))
        teacher_layers = layer_outputs(self.teacher.model, frozen["model"], batch, layers, None) if layers else {}
        tokens_BL = self._tokens(batch)

        def distance(name: str, student: int, teacher: int) -> jax.Array:
            """Return the distance `name` between two layers, summed over tokens."""
            student_output, teacher_output = student_layers[student], teacher_layers[teacher]
            if name == "attention":
                return DISCREPANCIES[name](teacher_output.attention, student_output.attention, tokens_BL)
            hidden: Any = student_output.hidden
            if self.projection is not None:
                hidden = self.projection.apply({"params": params[PROJECTIONS][_path(student)]}, hidden)
            return DISCREPANCIES[name](teacher_output.hidden, hidden, tokens_BL)

        for name, weight in self._discrepancies().items():
            total = sum(distance(name, *pair) for pair in self.pairs)
            sums[name] = jnp.asarray(total) * (weight / depth(self.student.model))
        if self._distils:
            last_BLD = None if self.teacher.generator else teacher_layers[depth(self.teacher.model)].hidden
            teacher_BPV, weights_BP = self.teacher.logits(frozen, batch, last_BLD), batch["masked_weights"]
            soft = jnp.sum(soft_cross_entropy(teacher_BPV, logits) * weights_BP)
            losses_BP = optax.softmax_cross_entropy_with_integer_labels(teacher_BPV, batch["masked_ids"])
            sums["distillation"] = (1 - self.knowledge.ground_truth) * soft
            metrics["teacher_mlm_loss"] = (jnp.sum(losses_BP * weights_BP), jnp.sum(weights_BP))
        return sums, metrics

    def _student(
        self, params: Params, batch: Batch, key: jax.Array | None
    ) -> tuple[dict[int, LayerOutput], Sums, Metrics, Any]:
        """Return outputs of the student's layers in `pairs`, loss terms, metrics and masked-LM logits (B,P,V).

        If `masked` is false, the loss terms and metrics are empty, and the logits are None.
        """
        layers = {layer for layer, _ in self.pairs}
        if not self.masked:
            return layer_outputs(self.student.model, params, batch, layers, key), {}, {}, None
        model_params = {k: value for k, value in params.items() if k != PROJECTIONS}
        output = self.student.apply(model_params, batch, key, masked_only=depth(self.student.model) not in layers)
        metrics = self.student.metrics(output, batch)
        share = self.knowledge.ground_truth
        sums = {term: metrics[f"{term}_loss"][0] for term in self.student.weights(batch)}
        sums["mlm"] = share * sums["mlm"]
        outputs = {
            layer: LayerOutput(output.hidden_states[layer], output.attentions[layer - 1] if layer else None)
            for layer in layers
        }
        sums = {term: total for term, total in sums.items() if term != "mlm" or share}
        return outputs, sums, metrics, output.masked_logits

    def _discrepancies(self) -> dict[str, float]:
        return self.knowledge.weights if self.pairs else {}

    @property
    def _distils(self) -> bool:
        return self.masked and self.knowledge.ground_truth < 1

    def _tokens(self, batch: Batch) -> jax.Array:
        """Return (B,L): 1 for tokens that count in the distances (padding only if `knowledge.pads`), else 0."""
        rows_BL = jnp.broadcast_to(batch["row_weight"][:, None], batch["attention_mask"].shape)
        return rows_BL if self.knowledge.pads else rows_BL * batch["attention_mask"]


def _path(layer: int) -> str:
    return f"layers_{layer - 1}"
