"""A student under its teacher: transfer layer by layer and pre-training distillation (MobileBERT, Sun et al. 2020,
https://arxiv.org/abs/2004.02984, §3.3 to §3.5), for any two models.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bertzoo.models import Compute, Model, Pretraining, pretraining
from bertzoo.models.partial import Reached, reach, stack
from bertzoo.nn import Dense
from bertzoo.nn.parameter import init_shapes
from bertzoo.objectives import discrepancy
from bertzoo.objectives.knowledge import Knowledge
from bertzoo.objectives.masked import MaskedObjective
from bertzoo.train.objective import Batch, Metrics, Params, Sums

PROJECTIONS = "projections"  # beside the student's own parameters; what leaves a run has none of them
_OF = {
    "feature": discrepancy.feature_map,
    "mean": discrepancy.mean,
    "variance": discrepancy.variance,
    "attention": discrepancy.attention,
}


class Teacher(NamedTuple):
    """`model` is looked into; a distribution over masked tokens, where there is to be one (`writes`), is that of its
    head, or of `generator`, a model of its own (ELECTRA's).
    """

    model: Pretraining
    generator: Pretraining | None
    writes: bool

    @property
    def depth(self) -> int:
        """Its number of layers."""
        return depth(self.model)

    @functools.lru_cache(maxsize=4)  # noqa: B019 - a tuple of modules, asked again and again by a start
    def shapes(self) -> Any:
        """The parameters it reads, boxed, as shapes: {"model": …, "generator": …}, the layers stacked where alike."""
        ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)

        def of(model: Pretraining, head: bool) -> Any:
            made = init_shapes(model.init, jax.random.key(0), ids, ids, ids, ids)["params"]
            made = {name: made[name] for name in ("embedding", "encoder", *["masked_head"] * head)}
            return stack(made, model.encoder.layers)  # type: ignore[attr-defined]

        if self.generator is None:
            return {"model": of(self.model, self.writes)}
        return {"model": of(self.model, False), "generator": of(self.generator, True)}

    def logits(self, frozen: Params, batch: Batch, last_BLD: jax.Array | None) -> jax.Array:
        """(B,P,V) at the masked positions; `last_BLD`: what its own last layer gave, where that is what is read."""
        model, params, hidden_BLD = self.model, frozen["model"], last_BLD
        if self.generator is not None:
            model, params = self.generator, frozen["generator"]
            hidden_BLD = reach(model, params, batch, {depth(model)}, None)[depth(model)].hidden
        head, table_VE = params["masked_head"], params["embedding"]["word"]["embedding"]
        logits: Any = model.masked_head.apply({"params": head}, hidden_BLD, batch["masked_positions"], table_VE)
        return logits


def depth(model: Pretraining) -> int:
    """A model's number of layers."""
    return len(model.encoder.layers)  # type: ignore[attr-defined]


def teacher(model: Model, generator: Model | None, writes: bool, compute: Compute) -> Teacher:
    """The modules of a teacher."""

    def of(config: Model) -> Pretraining:
        return pretraining(config, compute, sentence=False).clone(pooler=None)

    return Teacher(of(model), None if generator is None or not writes else of(generator), writes)


@dataclass(frozen=True)
class TaughtObjective:
    """Σ over pairs of layers and over discrepancies of weight · mean over tokens, divided by the student's layers, and
    where it is `masked` the masked language model with α of its labels true and 1 − α the teacher's, and the sentence
    head's loss on the truth (§3.3 to §3.5).

    pairs: (student's layer, teacher's), counted from 1, of which the discrepancies count. projection: a learnt map from
    the student's `width` to the teacher's, one for each of the layers `projected`, whichever count.
    """

    student: MaskedObjective
    teacher: Teacher
    knowledge: Knowledge
    pairs: tuple[tuple[int, int], ...]
    masked: bool
    projection: Dense | None = None
    projected: tuple[int, ...] = ()
    width: int = 0

    def init(self, key: jax.Array) -> Params:
        params = self.student.init(key)
        if self.projection is None:
            return params
        state, keys = jnp.zeros((1, self.width)), {layer: jax.random.fold_in(key, layer) for layer in self.projected}
        made = {_place(layer): self.projection.init(keys[layer], state)["params"] for layer in self.projected}
        return {**params, PROJECTIONS: made}

    def weights(self, batch: Batch) -> Sums:
        weights = dict.fromkeys(self._discrepancies(), jnp.sum(self._tokens(batch)))
        if not self.masked:
            return weights
        own = self.student.weights(batch)
        if self._distils:
            weights["distillation"] = own["mlm"]
        return weights | {term: weight for term, weight in own.items() if term != "mlm" or self.knowledge.ground_truth}

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        key = key if self.knowledge.dropout else None
        mine, sums, metrics, logits = self._student(params, batch, key)
        theirs = self._look(frozen, batch)
        tokens_BL = self._tokens(batch)
        for name, weight in self._discrepancies().items():
            total = sum(
                self._of(name, theirs[teacher], mine[student], params, student, tokens_BL)
                for student, teacher in self.pairs
            )
            sums[name] = jnp.asarray(total) * (weight / depth(self.student.model))
        if self._distils:
            last_BLD = None if self.teacher.generator else theirs[self.teacher.depth].hidden
            teacher_BPV = self.teacher.logits(frozen, batch, last_BLD)
            sums["distillation"], metrics["teacher_mlm_loss"] = self._distil(teacher_BPV, logits, batch)
        return sums, metrics

    def _student(
        self, params: Params, batch: Batch, key: jax.Array | None
    ) -> tuple[dict[int, Reached], Sums, Metrics, Any]:
        """What its layers give; where it is masked also the terms and metrics on the truth, and the logits."""
        if not self.masked:
            return reach(self.student.model, params, batch, {layer for layer, _ in self.pairs}, key), {}, {}, None
        own = {name: value for name, value in params.items() if name != PROJECTIONS}
        output = self.student.apply(own, batch, key)
        metrics = self.student.metrics(output, batch)
        share = self.knowledge.ground_truth
        sums = {term: metrics[f"{term}_loss"][0] for term in self.student.weights(batch)}
        sums["mlm"] = share * sums["mlm"]
        layers = {
            layer: Reached(output.hidden_states[layer], output.attentions[layer - 1] if layer else None)
            for layer, _ in self.pairs
        }
        kept = {term: total for term, total in sums.items() if term != "mlm" or share}
        return layers, kept, metrics, output.masked_logits

    def _look(self, frozen: Params, batch: Batch) -> dict[int, Reached]:
        wanted = {layer for _, layer in self.pairs} if self._discrepancies() else set()
        if self._distils and self.teacher.generator is None:
            wanted.add(self.teacher.depth)
        return reach(self.teacher.model, frozen["model"], batch, wanted, None) if wanted else {}

    def _distil(self, teacher_BPV: jax.Array, logits_BPV: Any, batch: Batch) -> tuple[jax.Array, Any]:
        """The term of the teacher's distribution, and the metric of its own loss on the truth."""
        weights_BP = batch["masked_weights"]
        soft = jnp.sum(discrepancy.soft_cross_entropy(teacher_BPV, logits_BPV) * weights_BP)
        losses_BP = optax.softmax_cross_entropy_with_integer_labels(teacher_BPV, batch["masked_ids"])
        return (1 - self.knowledge.ground_truth) * soft, (jnp.sum(losses_BP * weights_BP), jnp.sum(weights_BP))

    def _of(
        self, name: str, theirs: Reached, mine: Reached, params: Params, layer: int, tokens_BL: jax.Array
    ) -> jax.Array:
        if name == "attention":
            return _OF[name](theirs.attention, mine.attention, tokens_BL)
        hidden: Any = mine.hidden
        if self.projection is not None:
            hidden = self.projection.apply({"params": params[PROJECTIONS][_place(layer)]}, hidden)
        return _OF[name](theirs.hidden, hidden, tokens_BL)

    def _discrepancies(self) -> dict[str, float]:
        return self.knowledge.weights if self.pairs else {}

    @property
    def _distils(self) -> bool:
        return self.masked and self.knowledge.ground_truth < 1

    def _tokens(self, batch: Batch) -> jax.Array:
        """(B,L): 1 for every token whose states and queries count."""
        rows_BL = jnp.broadcast_to(batch["row_weight"][:, None], batch["attention_mask"].shape)
        return rows_BL if self.knowledge.pads else rows_BL * batch["attention_mask"]


def _place(layer: int) -> str:
    """The name that a layer, counted from 1, has among the parameters."""
    return f"layers_{layer - 1}"
