"""What one stage of a run trains, by which loss and how fast: stages of one run may differ in all three."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import optax

from bertzoo.train import optim
from bertzoo.train.optim import Optimizer
from bertzoo.train.state import name_of
from bertzoo.train.step import Batch, Objective, Sums

Rates = Callable[[str], float]  # a parameter's path -> the factor of its learning rate; 0: it is frozen
Watch = Callable[[Any], dict[str, float]]  # of the parameters; one process may watch where others do not
Rule = Callable[[Callable[[Any], jax.Array]], optax.GradientTransformation]  # of the schedule: step -> learning rate


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageSetup:
    """A stage's loss, its optimiser with the schedule, and how fast each parameter moves; `name` is for a person.

    rates: by a parameter's path the factor of the learning rate; a frozen one has no gradient and no moments. None: all
    move at the full rate. rule: what takes the place of the optimiser's own update under its schedule. watch: figures
    of the parameters, for every record of the training. Every setup of a run has the same parameters.
    """

    objective: Objective
    optimizer: Optimizer
    rates: Rates | None = None
    rule: Rule | None = None
    watch: Watch | None = None
    name: str = ""

    def transformation(self, steps: int, learning_rate: float | None = None) -> optax.GradientTransformation:
        """The optimiser over so many steps, as `optim.build` makes it."""
        if self.rule is not None:
            return self.rule(optim.schedule_of(self.optimizer, steps, learning_rate))
        return optim.build(self.optimizer, steps, learning_rate, rates=self.rates)

    @property
    def trained(self) -> Objective:
        """The objective with no gradient for what is frozen, so that none is computed."""
        return self.objective if self.rates is None else _Held(self.objective, self.rates)


@dataclasses.dataclass(frozen=True)
class _Held:
    objective: Objective
    rates: Rates

    def init(self, key: jax.Array) -> Any:
        return self.objective.init(key)

    def weights(self, batch: Batch) -> Sums:
        return self.objective.weights(batch)

    def __call__(self, params: Any, frozen: Any, batch: Batch, key: jax.Array | None) -> Any:
        def hold(path: tuple, leaf: jax.Array) -> jax.Array:
            return leaf if self.rates(name_of(path)) else jax.lax.stop_gradient(leaf)

        return self.objective(jax.tree.map_with_path(hold, params), frozen, batch, key)
