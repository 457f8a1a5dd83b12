"""The first half of Algorithm 1: weights stay, and prune vectors alone are trained (Khetan and Karnin 2020, Eq. 2)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import optax

from bertzoo.pruning import penalty
from bertzoo.pruning.structure import Structure
from bertzoo.pruning.surgery import fold
from bertzoo.train.objective import Batch, Metrics, Objective, Sums

Vectors = Mapping[str, jax.Array]


class Gates(Protocol):
    """What is trained for a dimension, the vector that it stands for, and what that costs."""

    @property
    def start(self) -> float:
        """What every element is trained from: the vectors are then 1."""
        ...

    def vector(self, trained: jax.Array, key: jax.Array | None) -> jax.Array:
        """The prune vector; without a key nothing in it is random."""
        ...

    def score(self, trained: jax.Array) -> jax.Array:
        """How much each element matters, to be compared with those of other dimensions."""
        ...

    def penalty(self, trained: Vectors, betas: Mapping[str, float]) -> jax.Array:
        """The penalty in the loss."""
        ...


@dataclass(frozen=True)
class Magnitudes:
    """The vectors themselves, under ℓ1; or, not `penalised` in the loss, under the proximal step (`proximal`)."""

    penalised: bool = True
    start: float = 1.0

    def vector(self, trained: jax.Array, key: jax.Array | None) -> jax.Array:
        return trained

    def score(self, trained: jax.Array) -> jax.Array:
        return jnp.abs(trained)

    def penalty(self, trained: Vectors, betas: Mapping[str, float]) -> jax.Array:
        return penalty.l1(trained, betas) if self.penalised else jnp.zeros(())


@dataclass(frozen=True)
class Chances:
    """The gates of ℓ0: drawn at random while they are trained. They start where a gate without noise is just 1."""

    gates: penalty.HardConcrete = field(default_factory=penalty.HardConcrete)
    start: float = 2.5

    def vector(self, trained: jax.Array, key: jax.Array | None) -> jax.Array:
        return self.gates.gate(trained) if key is None else self.gates.sample(trained, key)

    def score(self, trained: jax.Array) -> jax.Array:
        return trained  # gates of 1 are alike, their logits are not

    def penalty(self, trained: Vectors, betas: Mapping[str, float]) -> jax.Array:
        return self.gates.penalty(trained, betas)


@dataclass(frozen=True, eq=False)
class PruneObjective:
    """The model's own objective with prune vectors multiplied into its frozen weights, plus γ Σ β·‖α‖ (Eq. 2).

    The vectors are the only parameters; the weights come as `frozen`, with more than the structure has where the
    objective has more (a generator), which is left as it is.
    """

    objective: Objective
    structure: Structure
    betas: Mapping[str, float]
    gamma: float
    gates: Gates

    def init(self, key: jax.Array) -> Any:
        def boxed(size: int) -> Any:
            constant = nn.with_logical_partitioning(nn.initializers.constant(self.gates.start), ("pruned",))
            return constant(key, (size,), jnp.float32)

        return nested({name: boxed(size) for name, size in self.structure.sizes.items()})

    def weights(self, batch: Batch) -> Sums:
        return {**self.objective.weights(batch), "penalty": jnp.sum(batch["row_weight"])}

    def __call__(self, params: Any, frozen: Any, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        trained, own, gate = named(params), None, None
        if key is not None:
            own, gate = jax.random.split(key)
        vectors = {
            name: self.gates.vector(trained[name], None if gate is None else jax.random.fold_in(gate, index))
            for index, name in enumerate(self.structure.dimensions)
        }
        weights = jax.lax.stop_gradient(named(frozen))
        sums, metrics = self.objective(nested(fold(self.structure, weights, vectors)), None, batch, own)
        rows, cost = jnp.sum(batch["row_weight"]), self.gates.penalty(trained, self.betas)
        metrics = {**metrics, "penalty": (cost * rows, rows), **self._left(trained, rows)}
        return {**sums, "penalty": self.gamma * cost * rows}, metrics

    def _left(self, trained: Vectors, rows: jax.Array) -> Metrics:
        """By letter as h_left, what is left of its vectors, which begin with 1: their mean under β."""
        totals: dict[str, Any] = {}
        for name, dimension in self.structure.dimensions.items():
            total, weight = totals.get(f"{dimension.letter}_left", (0.0, 0.0))
            kept = jnp.sum(jnp.abs(self.gates.vector(trained[name], None)))
            beta = self.betas[name]
            totals[f"{dimension.letter}_left"] = total + beta * kept * rows, weight + beta * dimension.size * rows
        return totals

    def scores(self, params: Any) -> dict[str, jax.Array]:
        """How much each element of each dimension matters, for `choose`."""
        return {name: self.gates.score(trained) for name, trained in named(params).items()}


def proximal(
    rate: Callable[[jax.Array], float | jax.Array], gamma: float, betas: Mapping[str, float]
) -> optax.GradientTransformation:
    """The last of a chain: what is updated is then soft-thresholded by rate·γ·β, and elements can become 0 exactly."""

    def init(params: Any) -> Any:
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        old, change = named(params), named(updates)
        moved = {name: old[name] + change[name] for name in old}
        shrunk = penalty.soft_threshold(moved, betas, gamma * rate(state.count))
        return nested({name: shrunk[name] - old[name] for name in old}), optax.ScaleByScheduleState(state.count + 1)

    return optax.GradientTransformation(init, update)


def named(params: Any) -> dict[str, Any]:
    """Parameters by their paths."""
    return flax.traverse_util.flatten_dict(params, sep="/")


def nested(params: Mapping[str, Any]) -> Any:
    """Parameters as the tree that a model reads."""
    return flax.traverse_util.unflatten_dict(dict(params), sep="/")
