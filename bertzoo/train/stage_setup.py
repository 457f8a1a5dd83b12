"""The training of one stage: its loss, its optimiser, and the learning rate of each parameter."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import optax

from bertzoo.train import optim
from bertzoo.train.objective import Batch, Objective, Sums
from bertzoo.train.optim import Optimizer
from bertzoo.train.state import matrices_of, name_of

RateFactor = Callable[[str], float]  # a parameter's path -> the factor of its learning rate; 0 freezes it
Monitor = Callable[[Any], dict[str, float]]  # parameters -> metrics; may differ between processes
UpdateRule = Callable[[Callable[[Any], jax.Array]], optax.GradientTransformation]  # schedule -> optimiser


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageSetup:
    """The loss and the optimiser of a training stage.

    rates: a function from a parameter's path to a factor of its learning rate; 0 means no gradient and no moments. If
    None, all parameters train at the full rate.
    rule: builds an optimiser from the schedule, in place of `optim.build`.
    watch: computes metrics of the parameters for training records.
    name: the stage's name in messages.

    All stages of a run have the same parameters.
    """

    objective: Objective
    optimizer: Optimizer
    rates: RateFactor | None = None
    rule: UpdateRule | None = None
    watch: Monitor | None = None
    name: str = ""

    def transformation(self, steps: int, learning_rate: float | None = None) -> optax.GradientTransformation:
        """Build the optimiser with a schedule over `steps` steps.

        learning_rate: as in `optim.build`.
        """
        if self.rule is not None:
            return self.rule(optim.schedule_of(self.optimizer, steps, learning_rate))
        matrices = matrices_of(self.objective) if isinstance(self.optimizer, optim.Muon) else {}
        return optim.build(self.optimizer, steps, learning_rate, rates=self.rates, matrices=matrices)

    @property
    def trained(self) -> Objective:
        """The objective without gradients for parameters whose factor in `rates` is 0."""
        return self.objective if self.rates is None else _WithFrozen(self.objective, self.rates)


@dataclasses.dataclass(frozen=True)
class _WithFrozen:
    objective: Objective
    rates: RateFactor

    def init(self, key: jax.Array) -> Any:
        return self.objective.init(key)

    def weights(self, batch: Batch) -> Sums:
        return self.objective.weights(batch)

    def __call__(self, params: Any, frozen: Any, batch: Batch, key: jax.Array | None) -> Any:
        def freeze(path: tuple, leaf: jax.Array) -> jax.Array:
            return leaf if self.rates(name_of(path)) else jax.lax.stop_gradient(leaf)

        return self.objective(jax.tree.map_with_path(freeze, params), frozen, batch, key)
