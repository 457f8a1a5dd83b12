"""A built run: what each stage trains, on which devices, and the shapes of all that a step reads and writes."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.extend import core

from bertzoo.nn.flops import matmul_flops
from bertzoo.train import optim, sharding
from bertzoo.train import stages as staging
from bertzoo.train import state as states
from bertzoo.train.compilation import StepProgram
from bertzoo.train.objective import Batch, Objective, Sums
from bertzoo.train.optim import Optimizer
from bertzoo.train.stages import Stage
from bertzoo.train.state import State, matrices_of, name_of
from bertzoo.train.step import gradients, make_train_step

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

    @property
    def is_shared(self) -> bool:
        """Whether another run's setup may be equal, so that its steps are worth the memory of a cache.

        Two setups with functions of their own are never equal.
        """
        return not (self.rates or self.rule or self.watch)

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


Shapes = dict[str, jax.ShapeDtypeStruct]


@functools.lru_cache(maxsize=16)  # a seed or a sweep's run would trace again what an equal one traced, for seconds
def _jitted_step(
    setup: StageSetup,
    schedule: tuple[int, float | None],
    microbatches: int,
    mesh: jax.sharding.Mesh,
    fallbacks: sharding.Fallbacks,
    frozen_places: tuple[jax.sharding.Sharding, ...],
    frozen_tree: Any,
) -> Any:
    """Build a stage's jitted step."""
    optimizer = setup.transformation(*schedule)
    return make_train_step(
        setup.trained,
        optimizer,
        accumulate=microbatches,
        shardings=states.shardings_of(states.abstract(setup.objective, optimizer, mesh, fallbacks)),
        frozen_shardings=jax.tree.unflatten(frozen_tree, frozen_places),
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """A built run. A method builds it once from its options and a mesh. The loop, the memory estimate, the plan, the
    check of a checkpoint and the count of FLOPs read it.

    stages, setups: of each stage, its sizes and schedule, and its loss and optimiser.
    batch(stage, rows): shapes of a batch of `rows` rows in a stage, if all its batches have the same.
    frozen: shapes of parameters that objectives read but training neither changes nor saves, such as a teacher's,
    boxed with their logical axes; None without any. frozen_dtype: the number format in which they are held.
    plain: builds the same run without recomputation in the backward pass, to count the model's own FLOPs.
    where(stage): config key of a stage, for messages.

    Raises ConfigError if the stages contradict one another, or if the mesh does not divide a batch or a parameter.
    """

    stages: Sequence[Stage]
    setups: Sequence[StageSetup]
    mesh: jax.sharding.Mesh
    batch: Callable[[int, int], Shapes] = lambda stage, rows: {}
    fallbacks: sharding.Fallbacks = sharding.NO_FALLBACKS
    frozen: Any = None
    frozen_dtype: Any = None
    plain: Callable[[], "Experiment"] | None = None
    where: Callable[[int], str] = "stages.{}".format
    _states: dict[int, State] = dataclasses.field(default_factory=dict, init=False)
    _programs: dict[int, StepProgram] = dataclasses.field(default_factory=dict, init=False)

    def __post_init__(self):
        staging.validate(self.stages, self.where)
        if len(self.setups) != len(self.stages):
            raise ValueError(f"there are {len(self.setups)} setups for {len(self.stages)} stages. Give one per stage.")
        for stage in self.stages:
            sharding.check_rows(stage.batch_size, stage.microbatches, self.mesh)
        sharding.shardings(self.named_boxed, self.mesh, self.fallbacks)

    @functools.cached_property
    def boxed(self) -> Any:
        """Shapes and dtypes of the trained parameters, boxed with their logical axes; all stages have the same."""
        return states.boxed_shapes(self.setups[0].objective)

    @property
    def named_boxed(self) -> Any:
        """`boxed` with the frozen parameters under "teacher", the name that errors about them show."""
        return self.boxed if self.frozen is None else {**self.boxed, "teacher": self.frozen}

    @functools.cached_property
    def frozen_shapes(self) -> Any:
        """Shapes, dtypes and shardings of the frozen parameters; None without any."""
        if self.frozen is None:
            return None
        places = sharding.shardings(self.frozen, self.mesh, self.fallbacks)
        dtype = jnp.dtype(self.frozen_dtype)
        return jax.tree.map(
            lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=place), nn.unbox(self.frozen), places
        )

    def transformation(self, index: int) -> optax.GradientTransformation:
        """Build the optimiser of stage `index`; the schedule spans all stages that share it."""
        group = staging.schedule_group(self.stages, index)
        return self.setups[index].transformation(group.steps, group.learning_rate)

    def learning_rate(self, index: int) -> Callable[[int], jax.Array]:
        """Return the function n -> learning rate of the run's n-th step, n = 1, 2, …, for steps in stage `index`."""
        group = staging.schedule_group(self.stages, index)
        rate = optim.schedule_of(self.setups[index].optimizer, group.steps, group.learning_rate)
        return lambda done: rate(done - 1 - group.start)

    def state(self, index: int) -> State:
        """Return shapes and shardings of the training state in stage `index`; only trained parameters have moments."""
        if index not in self._states:
            objective = self.setups[index].objective
            self._states[index] = states.abstract(objective, self.transformation(index), self.mesh, self.fallbacks)
        return self._states[index]

    def step(self, index: int, frozen: Any = None) -> StepProgram:
        """Return the training step of stage `index`, built unless the last call was for it.

        frozen: as in `jitted_step`.
        """
        if index not in self._programs:
            self._programs.clear()  # a run never returns to a stage, and a transfer's 25 programs would need GBs
            self._programs[index] = StepProgram(self.jitted_step(index, frozen), self.setups[index].is_shared)
        return self._programs[index]

    def jitted_step(self, index: int, frozen: Any = None) -> Any:
        """Build the jitted function (state, frozen, batch) -> (state, report) of stage `index`.

        frozen: frozen parameters, or their shapes, with shardings; None for those of `frozen_shapes`.
        """
        group, stage = staging.schedule_group(self.stages, index), self.stages[index]
        places = jax.tree.flatten(states.shardings_of(self.frozen_shapes if frozen is None else frozen))
        schedule = group.steps, group.learning_rate
        setup = self.setups[index]
        build = _jitted_step if setup.is_shared else _jitted_step.__wrapped__
        return build(setup, schedule, stage.microbatches, self.mesh, self.fallbacks, tuple(places[0]), places[1])

    def lower(self, index: int) -> jax.stages.Lowered:
        """Lower the step of stage `index` for the mesh's devices, which this machine may lack."""
        rows = sharding.batch_sharding(self.mesh)
        batch = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=rows)
            for name, array in self.batch(index, self.stages[index].batch_size).items()
        }
        return self.jitted_step(index).lower(self.state(index), self.frozen_shapes, batch)

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
