"""A built run: its stages, their objectives, the devices, and the shapes of all inputs and outputs of a step."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import flax.linen as nn
import jax
import optax
from jax.extend import core

from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError
from bertzoo.nn.flops import matmul_flops
from bertzoo.train import optim, sharding
from bertzoo.train import state as states
from bertzoo.train.optim import Optimizer
from bertzoo.train.state import State, matrices_of, name_of
from bertzoo.train.step import Batch, Objective, StepProgram, Sums, gradients, make_eval_step, make_train_step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """One phase of training with a fixed batch shape.

    With carry = "all", the stage and the stage before it share a schedule (BERT: 90 % of steps at 128 tokens, 10 % at
    512).
    """

    steps: int  # optimiser steps
    batch_size: int  # rows of one step, over all devices and microbatches
    max_length: int  # sequence length in tokens
    max_predictions: int = 20  # most masked positions per sequence
    # predicted share of a sequence's tokens, or [first, last] for a linear change over the stage; "none":
    # data.masking.share, which held-out evaluation always uses
    masking_share: float | tuple[float, ...] | None = None
    learning_rate: float | None = None  # peak of the stage's schedule; "none": the optimiser's
    # microbatches a step is cut into; "none": in pretrain and transfer on CPUs those of about 1,024 tokens, else one
    accumulate: int | None = None
    # state to carry from the previous stage, beside the parameters: "moments" carries the optimiser's moments under a
    # new schedule; "all" also continues the schedule; "params" starts with a fresh optimiser
    carry: Literal["moments", "all", "params"] = "moments"

    def __post_init__(self):
        sizes = ("steps", "batch_size", "max_length", "max_predictions", "accumulate")
        check_range(self, *sizes, least=1, advice="Use 1 or more.")
        if self.batch_size % self.microbatches:
            raise ConfigError(
                f"batch_size={self.batch_size} is not divisible by accumulate={self.accumulate}. Change one of them."
            )
        if self.max_predictions >= self.max_length:
            raise ConfigError(
                f"max_predictions={self.max_predictions} is not less than max_length={self.max_length}, "
                "so every token of a sequence would be masked. Lower max_predictions."
            )
        shares = self.masking_shares
        if shares is not None:
            shown = f"masking_share={list(shares) if isinstance(self.masking_share, tuple) else self.masking_share}"
            if len(shares) != 2 or not all(0 < share < 1 for share in shares):
                raise ConfigError(
                    f"{shown} is neither a share between 0 and 1 nor two shares. Use 0.15, for example, or "
                    "[first, last]."
                )
            needed = round(max(shares) * self.max_length)
            if needed > self.max_predictions:
                remedy = "Lower masking_share." if needed >= self.max_length else f"Set max_predictions={needed}."
                raise ConfigError(
                    f"{shown} predicts up to {needed} of max_length={self.max_length} tokens, more than "
                    f"max_predictions={self.max_predictions}. {remedy}"
                )
        check_range(self, "learning_rate", least=0, advice="Use 0 or more.")
        if self.steps * self.batch_size >= 2**31:
            raise ConfigError(
                f"steps={self.steps} of batch_size={self.batch_size} exceed the limit of 2^31 rows in a stage. "
                'Split the stage in two, the second with carry="all".'
            )

    @property
    def microbatches(self) -> int:
        """The number of microbatches that a step is cut into, 1 if the config leaves it open."""
        return self.accumulate or 1

    @property
    def masking_shares(self) -> tuple[float, ...] | None:
        """Shares of a sequence's tokens to predict at the first and the last step; None selects data.masking.share."""
        if self.masking_share is None or isinstance(self.masking_share, tuple):
            return self.masking_share
        return self.masking_share, self.masking_share


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The schedule that one or more stages share."""

    start: int  # number of steps before the schedule
    steps: int
    learning_rate: float | None  # peak of the schedule; None takes the peak in the optimiser's config


def validate(stages: Sequence[Stage], where: Callable[[int], str] = "stages.{}".format) -> None:
    """Raise ConfigError if the stages contradict one another; the error names a stage by `where(index)`."""
    if not stages:
        raise ConfigError("stages is empty. Add at least one [[stages]] with steps, batch_size and max_length.")
    if stages[0].carry == "all":
        raise ConfigError(f'{where(0)}.carry="all" has no stage before it to carry from. Remove it.')
    for i, stage in enumerate(stages):
        peak = schedule_group(stages, i).learning_rate
        if stage.carry == "all" and stage.learning_rate not in (None, peak):
            raise ConfigError(
                f'{where(i)}.carry="all" continues the schedule of the previous stage, whose peak is '
                f"{peak or 'optimizer.learning_rate'}, not learning_rate={stage.learning_rate}. Remove carry or "
                "learning_rate."
            )


def total_steps(stages: Sequence[Stage]) -> int:
    return sum(stage.steps for stage in stages)


def start_of(stages: Sequence[Stage], index: int) -> int:
    """Return the number of finished steps when stage `index` starts."""
    return total_steps(stages[:index])


def locate(stages: Sequence[Stage], step: int) -> tuple[int, int]:
    """Return (index of the stage of the next step, finished steps of this stage) after `step` steps.

    After the last step, returns (len(stages), 0). Raises ConfigError if the run has fewer steps.
    """
    remaining = step
    for index, stage in enumerate(stages):
        if remaining < stage.steps:
            return index, remaining
        remaining -= stage.steps
    if remaining:
        raise ConfigError(f"step {step} is beyond the {total_steps(stages)} steps of the stages. Use an earlier step.")
    return len(stages), 0


def stage_of(stages: Sequence[Stage], step: int) -> int:
    """Return the index of the stage with step number `step`, counted from 1; raises the errors of `locate`."""
    index, inside = locate(stages, step)
    return index if inside else index - 1


def schedule_group(stages: Sequence[Stage], index: int) -> Group:
    """Return the schedule of stage `index`: stages joined by carry="all" share a schedule."""
    first = index
    while stages[first].carry == "all":
        first -= 1
    last = index + 1
    while last < len(stages) and stages[last].carry == "all":
        last += 1
    start = start_of(stages, first)
    return Group(start=start, steps=start_of(stages, last) - start, learning_rate=stages[first].learning_rate)


RateFactor = Callable[[str], float]  # a parameter's path -> factor of its learning rate; 0: no gradient, no moments


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageSetup:
    """The loss and the optimiser of a training stage; all stages of a run have the same parameters."""

    objective: Objective
    optimizer: Optimizer
    rates: RateFactor | None = None  # None trains all parameters at the full rate
    # builds an optimiser from the schedule, instead of `optim.build`
    rule: Callable[[Callable[[Any], jax.Array]], optax.GradientTransformation] | None = None
    name: str = ""  # in messages

    @property
    def is_shared(self) -> bool:
        """Whether another run's setup may be equal; setups with functions never are."""
        return not (self.rates or self.rule)

    def transformation(self, steps: int, learning_rate: float | None = None) -> optax.GradientTransformation:
        """Build the optimiser with a schedule over `steps` steps; learning_rate: as in `optim.build`."""
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


Shapes = dict[str, jax.ShapeDtypeStruct]


@functools.lru_cache(maxsize=16)  # otherwise, equal runs of seeds or a sweep would trace again, which takes seconds
def _jitted_steps(
    setup: StageSetup,
    schedule: tuple[int, float | None],
    microbatches: int,
    mesh: jax.sharding.Mesh,
    frozen_shardings: tuple[jax.sharding.Sharding, ...],
    frozen_tree: Any,
) -> tuple[Any, Any]:
    optimizer = setup.transformation(*schedule)
    train_step = make_train_step(
        setup.trained,
        optimizer,
        accumulate=microbatches,
        shardings=states.shardings_of(states.abstract(setup.objective, optimizer, mesh)),
        frozen_shardings=jax.tree.unflatten(frozen_tree, frozen_shardings),
    )
    return train_step, make_eval_step(setup.objective)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """A built run. A method builds it once from its options and a mesh. The loop, the memory estimate, the plan, the
    check of a checkpoint and the count of FLOPs read it.

    Raises ConfigError if the stages contradict one another, or if the mesh does not divide a batch or a parameter.
    """

    stages: Sequence[Stage]
    setups: Sequence[StageSetup]
    mesh: jax.sharding.Mesh
    # (stage, rows) -> shapes of a batch, if all batches of a stage have the same
    batch: Callable[[int, int], Shapes] = lambda stage, rows: {}
    frozen: Any = None  # shapes, boxed with their logical axes, of the parameters in `loop.Job.frozen`
    frozen_dtype: Any = None  # number format of these parameters
    plain: Callable[[], "Experiment"] | None = None  # builds the same run without recomputation, to count FLOPs
    where: Callable[[int], str] = "stages.{}".format  # config key of a stage, for messages
    boxed: Any = dataclasses.field(init=False)  # shapes and dtypes of the trained parameters, with their logical axes
    frozen_shapes: Any = dataclasses.field(default=None, init=False)  # with dtypes and shardings
    _states: dict[int, State] = dataclasses.field(default_factory=dict, init=False)
    _programs: dict[int, StepProgram] = dataclasses.field(default_factory=dict, init=False)

    def __post_init__(self):
        validate(self.stages, self.where)
        if len(self.setups) != len(self.stages):
            raise ValueError(f"there are {len(self.setups)} setups for {len(self.stages)} stages. Give one per stage.")
        for stage in self.stages:
            sharding.check_rows(stage.batch_size, stage.microbatches, self.mesh)
        object.__setattr__(self, "boxed", states.boxed_shapes(self.setups[0].objective))
        sharding.shardings(self.named_boxed, self.mesh)
        if self.frozen is not None:
            frozen = states.placed(self.frozen, self.mesh, self.frozen_dtype)
            object.__setattr__(self, "frozen_shapes", frozen)

    @property
    def named_boxed(self) -> Any:
        """`boxed` with the frozen parameters under "teacher", the name that errors about them show."""
        return self.boxed if self.frozen is None else {**self.boxed, "teacher": self.frozen}

    def transformation(self, index: int) -> optax.GradientTransformation:
        """Build the optimiser of stage `index`; the schedule spans all stages that share it."""
        group = schedule_group(self.stages, index)
        return self.setups[index].transformation(group.steps, group.learning_rate)

    def learning_rate(self, index: int) -> Callable[[int], jax.Array]:
        """Return the function n -> learning rate of the run's n-th step, n = 1, 2, …, for steps of stage `index`."""
        group = schedule_group(self.stages, index)
        rate = optim.schedule_of(self.setups[index].optimizer, group.steps, group.learning_rate)
        return lambda step: rate(step - 1 - group.start)

    def state(self, index: int) -> State:
        """Return shapes and shardings of the training state in stage `index`; only trained parameters have moments."""
        if index not in self._states:
            objective = self.setups[index].objective
            self._states[index] = states.abstract(objective, self.transformation(index), self.mesh)
        return self._states[index]

    def step(self, index: int) -> StepProgram:
        """Return the steps of stage `index`, built unless the last call was for it."""
        if index not in self._programs:
            self._programs.clear()  # a run never returns to a stage, and a transfer's 25 programs would need GBs
            self._programs[index] = StepProgram(*self.jitted_steps(index), self.setups[index].is_shared)
        return self._programs[index]

    def jitted_steps(self, index: int) -> tuple[Any, Any]:
        """Build the jitted training step of a stage and its evaluation step."""
        group, setup = schedule_group(self.stages, index), self.setups[index]
        shardings, tree = jax.tree.flatten(states.shardings_of(self.frozen_shapes))
        schedule, microbatches = (group.steps, group.learning_rate), self.stages[index].microbatches
        build = _jitted_steps if setup.is_shared else _jitted_steps.__wrapped__
        return build(setup, schedule, microbatches, self.mesh, tuple(shardings), tree)

    def lower(self, index: int) -> jax.stages.Lowered:
        """Lower the step of stage `index` for the mesh's devices, which this machine may lack."""
        rows = sharding.batch_sharding(self.mesh)
        batch = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=rows)
            for name, array in self.batch(index, self.stages[index].batch_size).items()
        }
        return self.jitted_steps(index)[0].lower(self.state(index), self.frozen_shapes, batch)

    def gradient_function(self, index: int) -> Callable[[Any, Any, Any], Any]:
        """Return the function (params, frozen, batch) -> gradients of stage `index`, with a fixed random key."""
        setup = self.setups[index]

        def function(params: Any, frozen: Any, batch: Any) -> Any:
            return gradients(setup.trained, params, frozen, batch, setup.objective.weights(batch), jax.random.key(0))[0]

        return function

    def trace_gradients(self, index: int, rows: int) -> core.Jaxpr:
        """Return the jaxpr of (parameters, frozen, batch of `rows` rows) -> gradients of stage `index`."""
        return jax.make_jaxpr(self.gradient_function(index))(*self._parameters(), self.batch(index, rows)).jaxpr

    def flops(self, index: int, batch: Mapping[str, Any] | None = None) -> int:
        """Return the FLOPs of matrix products for one row of stage `index`, without recomputation.

        batch: arrays whose rows are counted, by default the stage's. The backward pass counts two matrix products for
        each in the forward pass, except in frozen parameters and below the first trained one.
        """
        if self.plain is not None:
            return self.plain().flops(index, batch)
        if batch is None:
            row = self.batch(index, 1)
        else:
            row = {name: jax.ShapeDtypeStruct((1, *array.shape[1:]), array.dtype) for name, array in batch.items()}
        params, frozen = self._parameters()
        if frozen is not None:
            return matmul_flops(self.gradient_function(index), params, frozen, row)
        objective: Objective = self.setups[index].objective
        return 3 * matmul_flops(lambda params, row: objective(params, None, row, None), params, row)

    def _parameters(self) -> tuple[Any, Any]:
        """Return the shapes of trained and frozen parameters, without shardings."""
        frozen = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self.frozen_shapes)
        return nn.unbox(self.boxed), frozen
