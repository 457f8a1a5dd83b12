"""First half of Algorithm 1: train prune vectors while the weights are frozen (Khetan and Karnin 2020, Eq. 2).

The prune vectors, the trained arrays behind them, and the penalty's factors β are dicts by name of dimension.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import optax

from bertzoo.pruning.structure import Structure, fold
from bertzoo.train.progress import SHARES
from bertzoo.train.state import named
from bertzoo.train.step import Batch, Metrics, Objective, Sums

Vectors = Mapping[str, jax.Array]
Betas = Mapping[str, float]
SHARES["left"] = "vectors at"  # means of the prune vectors, which start at 1


def l1(vectors: Vectors, betas: Betas) -> jax.Array:
    """Return Σ β·‖α‖₁ over the prune vectors α (Khetan and Karnin 2020, Eq. 2)."""
    return jnp.asarray(sum(betas[name] * jnp.sum(jnp.abs(vector)) for name, vector in vectors.items()))


def soft_threshold(vectors: Vectors, betas: Betas, step: float | jax.Array) -> dict[str, jax.Array]:
    """Return sign(α)·max(|α| − step·β, 0) of the vectors α: the proximal step of Σ β·‖α‖₁; step: γ·learning rate."""
    return {
        name: jnp.sign(vector) * jnp.maximum(jnp.abs(vector) - step * betas[name], 0.0)
        for name, vector in vectors.items()
    }


def proximal(
    rate: Callable[[jax.Array], float | jax.Array], gamma: float, betas: Betas
) -> optax.GradientTransformation:
    """Return the last transformation of an optimiser: soft-threshold the updated vectors by rate·gamma·β.

    This sets elements below the threshold to exactly 0. rate: a function from the step to the learning rate.
    """

    def init(params: Any) -> Any:
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        old, change = named(params), named(updates)
        moved = {name: old[name] + change[name] for name in old}
        shrunk = soft_threshold(moved, betas, gamma * rate(state.count))
        return nested({name: shrunk[name] - old[name] for name in old}), optax.ScaleByScheduleState(state.count + 1)

    return optax.GradientTransformation(init, update)


@dataclass(frozen=True)
class Magnitudes:
    """Train the elements of the prune vectors directly, not through random gates as HardConcrete does.

    penalised: whether the loss includes the ℓ1 penalty. If not, `proximal` shrinks the vectors after each update.
    start: initial value of every element; at 1, the model is unchanged.
    """

    penalised: bool = True
    start: ClassVar[float] = 1.0

    def vector(self, trained: jax.Array, key: jax.Array | None) -> jax.Array:
        """Return the prune vector, which is `trained` itself."""
        return trained

    def score(self, trained: jax.Array) -> jax.Array:
        """Return the importance of each element, comparable across dimensions."""
        return jnp.abs(trained)

    def penalty(self, trained: Vectors, betas: Betas) -> jax.Array:
        """Return the ℓ1 penalty to add to the loss, or 0 if not `penalised`."""
        return l1(trained, betas) if self.penalised else jnp.zeros(())


class HardConcrete(NamedTuple):
    """Train the logits log α of random gates in [0, 1], in which the ℓ0 penalty is differentiable.

    The gates and the defaults of temperature (β), low (γ) and high (ζ) are those of Louizos et al. 2018, §2.2. A gate
    is drawn from [low, high] and clipped to [0, 1]. `vector`, `score` and `penalty` mean the same as in Magnitudes.
    """

    temperature: float = 2 / 3
    low: float = -0.1
    high: float = 1.1
    start: float = 2.5  # initial logit, where a gate without noise just reaches 1

    def vector(self, trained: jax.Array, key: jax.Array | None) -> jax.Array:
        """Return random gates (Louizos et al. 2018, Eq. 10 and 11); without a key, the final gates (Eq. 13)."""
        if key is None:
            return self._stretched(jax.nn.sigmoid(trained))
        u = jax.random.uniform(key, trained.shape, minval=1e-6, maxval=1 - 1e-6)
        return self._stretched(jax.nn.sigmoid((jnp.log(u) - jnp.log1p(-u) + trained) / self.temperature))

    def score(self, trained: jax.Array) -> jax.Array:
        """Return the logits; they rank elements even where all gates are 1."""
        return trained

    def penalty(self, trained: Vectors, betas: Betas) -> jax.Array:
        """Return Σ β·P(gate ≠ 0) over all gates (Louizos et al. 2018, Eq. 12)."""
        shift = self.temperature * jnp.log(-self.low / self.high)
        return jnp.asarray(sum(betas[name] * jnp.sum(jax.nn.sigmoid(x - shift)) for name, x in trained.items()))

    def _stretched(self, s: jax.Array) -> jax.Array:
        return jnp.clip(s * (self.high - self.low) + self.low, 0.0, 1.0)


Gates = Magnitudes | HardConcrete


@dataclass(frozen=True, eq=False)
class PruneObjective:
    """The model's objective, with prune vectors α multiplied into its weights, plus the penalty γ Σ β·‖α‖.

    This is Eq. 2 of Khetan and Karnin 2020. Only the vectors are trained; the weights are frozen. Weights that the
    structure lacks (a generator's) pass through unchanged. γ is `gamma`, and β is `betas`.
    """

    objective: Objective
    structure: Structure
    betas: Betas
    gamma: float
    gates: Gates

    def init(self, key: jax.Array) -> Any:
        constant = nn.with_logical_partitioning(nn.initializers.constant(self.gates.start), ("pruned",))
        return nested({name: constant(key, (size,), jnp.float32) for name, size in self.structure.sizes.items()})

    def weights(self, batch: Batch) -> Sums:
        return {**self.objective.weights(batch), "penalty": jnp.sum(batch["row_weight"])}

    def __call__(self, params: Any, frozen: Any, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        trained = named(params)
        model_key, gate_key = (None, None) if key is None else jax.random.split(key)
        vectors = {
            name: self.gates.vector(trained[name], None if gate_key is None else jax.random.fold_in(gate_key, index))
            for index, name in enumerate(self.structure.dimensions)
        }
        weights = jax.lax.stop_gradient(named(frozen))
        sums, metrics = self.objective(nested(fold(self.structure, weights, vectors)), None, batch, model_key)
        rows, cost = jnp.sum(batch["row_weight"]), self.gates.penalty(trained, self.betas)
        means: dict[str, Any] = {}  # by letter, the mean absolute value in its prune vectors, weighted by β; 1 at first
        for name, dimension in self.structure.dimensions.items():
            total, weight = means.get(f"{dimension.letter}_left", (0.0, 0.0))
            magnitude, beta = jnp.sum(jnp.abs(self.gates.vector(trained[name], None))), self.betas[name]
            means[f"{dimension.letter}_left"] = total + beta * magnitude * rows, weight + beta * dimension.size * rows
        return {**sums, "penalty": self.gamma * cost * rows}, {**metrics, "penalty": (cost * rows, rows), **means}


def nested(params: Mapping[str, Any]) -> Any:
    """Return parameters by path as the tree that a model reads, the inverse of `state.named`."""
    return flax.traverse_util.unflatten_dict(dict(params), sep="/")
