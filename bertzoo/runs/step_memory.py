"""Estimate the memory of a training step from shapes alone, and advise what to change if devices have less."""

import bisect
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.extend import core

from bertzoo.core.errors import OutOfMemory
from bertzoo.models.parts import divisors
from bertzoo.nn import liveness
from bertzoo.runs import stage_setups
from bertzoo.runs.batches import batch_shapes
from bertzoo.runs.transfer_config import Recipe, Transfer
from bertzoo.train import compilation, sharding
from bertzoo.train import stages as staging
from bertzoo.train import state as states
from bertzoo.train.state import State

# Compiled steps need 0.85 to 1.32 times the estimate on a CPU, and less on accelerators, whose compilers fuse more.
_LEAST = {"cpu": 0.85}
_LEAST_ELSEWHERE = 0.5
_MOST = 1.35


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Bytes that a training step needs on one device.

    All fields are exact except `activations`, an estimate: the peak of live values if the compiler fuses no operations.
    gradients: float32; with several microbatches, the gradients of one microbatch and the sum over microbatches.
    """

    parameters: int
    optimizer: int
    teacher: int
    batch: int
    gradients: int
    activations: int

    @property
    def total(self) -> int:
        """The sum of all fields."""
        return sum(dataclasses.astuple(self))

    @property
    def exact(self) -> int:
        """The sum of all fields except `activations`."""
        return self.total - self.activations

    @property
    def ample(self) -> int:
        """`total` plus a second copy of parameters and optimiser state, a reserve for unknown needs of the compiler."""
        return self.total + self.parameters + self.optimizer


def step_memory(
    recipe: Recipe,
    index: int,
    mesh: jax.sharding.Mesh,
    accumulate: int | None = None,
    gradients: core.Jaxpr | None = None,
) -> StepMemory:
    """Return the memory that a step needs in training stage `index`.

    accumulate: number of microbatches, by default the stage's own. gradients: the result of `trace_gradients` for the
    rows of a microbatch on one device; computed if None.
    """
    stage, state = recipe.stages[index], state_shapes(recipe, index, mesh)
    rows, accumulate = stage.batch_size // sharding.row_shards(mesh), accumulate or stage.microbatches
    if gradients is None:
        gradients = trace_gradients(recipe, index, rows // accumulate)
    parameters, teacher = bytes_of(state.params), teacher_shapes(recipe, mesh)
    gathered = bytes_of((state.params, teacher), whole=True) - bytes_of((state.params, teacher))
    return StepMemory(
        parameters=parameters,
        optimizer=bytes_of(state.opt_state),
        teacher=bytes_of(teacher),
        batch=bytes_of(batch_shapes(recipe, index, rows)),
        gradients=parameters * (2 if accumulate > 1 else 1),
        activations=liveness.peak_beside_results(gradients) + gathered,
    )


def check_memory(
    recipe: Recipe,
    mesh: jax.sharding.Mesh,
    tell: Callable[[str], None] = lambda line: None,
    where: Callable[[int], str] | None = None,
) -> None:
    """Raise OutOfMemory, with advice, if the largest step is certain not to fit the devices.

    Warns through `tell` about a step that may not fit; `train.compilation.check_fits` decides after compiling it.
    where: maps a stage's index to the config key that the advice names, by default `recipe.where`.
    """
    index = max(range(len(recipe.stages)), key=lambda i: _tokens(recipe.stages[i]))
    memory, device = step_memory(recipe, index, mesh), compilation.device_memory()
    least = _LEAST.get(jax.default_backend(), _LEAST_ELSEWHERE)
    if max(memory.exact, least * memory.total) <= device.usable < memory.total:
        tell(
            f"warning: the step of stage {index} needs about {memory.total / 1e9:,.1f} GB of memory on each device, "
            f"which has {device.usable / 1e9:,.1f} GB: it may not fit. "
            + advice(recipe, mesh, where)(index, device.usable / memory.total)
        )
    elif device.usable < memory.total:
        error = OutOfMemory(memory.total, device.usable, "free" if device.usable < device.total else "")
        raise error.of_step(
            f"the step of stage {index}", advice(recipe, mesh, where)(index, device.usable / memory.total)
        )


def advice(
    recipe: Recipe, mesh: jax.sharding.Mesh, where: Callable[[int], str] | None = None
) -> Callable[[int, float], str]:
    """Return a function (stage's index, share) -> sentence that advises how to cut the memory of the stage's step.

    The sentence offers two options: more microbatches (`accumulate`) or a smaller `batch_size`. Either one cuts the
    estimate to at most share / _MOST of the present one, because a compiled step may need _MOST times its estimate. If
    one row per microbatch still needs more, the sentence advises a smaller model or more devices.

    share: a fraction of the present estimate. where: as in `check_memory`.
    """
    shards = sharding.row_shards(mesh)

    def sentence(index: int, share: float) -> str:
        stage, key = recipe.stages[index], (where or recipe.where)(index)
        limit, rows = share * step_memory(recipe, index, mesh).total / _MOST, stage.batch_size // shards
        parts = [n for n in divisors(rows) if n > stage.microbatches]
        fitting = bisect.bisect_left(parts, True, key=lambda n: step_memory(recipe, index, mesh, n).total <= limit)
        if fitting == len(parts):
            return (
                "Not even one row at a time is certain to fit. Use a smaller model, a device with more memory, or "
                "--mesh.fsdp to split the parameters over more devices."
            )
        n, (table, _, number) = parts[fitting], key.rpartition(".")
        together = number.isdecimal() and all(other.batch_size % (n * shards) == 0 for other in recipe.stages)
        option = f"'--{table}.*.accumulate={n}'" if together else f"--{key}.accumulate={n}"
        smaller = stage.batch_size * stage.microbatches // n
        return (
            f"Use {option}, which computes the same in {n} parts, or --{key}.batch_size={smaller}, which changes the "
            "recipe."
        )

    return sentence


def state_shapes(recipe: Recipe, index: int, mesh: jax.sharding.Mesh) -> State:
    """Return shapes, dtypes and shardings of the training state in stage `index`.

    Raises ConfigError if the mesh does not divide a parameter.
    """
    setup, group = stage_setups.build_setups(recipe)[index], staging.schedule_group(recipe.stages, index)
    optimizer = setup.transformation(group.steps, group.learning_rate)
    return states.abstract(setup.objective, optimizer, mesh, recipe.mesh.fallbacks)


def teacher_shapes(recipe: Recipe, mesh: jax.sharding.Mesh) -> Any:
    """Return shapes, dtypes and shardings of a teacher's parameters, or None without a teacher."""
    return stage_setups.teacher_shapes(recipe, mesh) if isinstance(recipe, Transfer) else None


def parameter_shapes(recipe: Recipe) -> Any:
    """Return shapes and dtypes of the trained model's parameters."""
    return nn.unbox(states.boxed_shapes(stage_setups.build_setups(recipe)[0].objective))


def trace_gradients(recipe: Recipe, index: int, rows: int) -> core.Jaxpr:
    """Return the jaxpr of (parameters, teacher's parameters, batch of `rows` rows) -> gradients for stage `index`."""
    teacher = stage_setups.teacher_shapes(recipe) if isinstance(recipe, Transfer) else None
    arguments = parameter_shapes(recipe), teacher, batch_shapes(recipe, index, rows)
    return jax.make_jaxpr(stage_setups.gradient_function(recipe, index))(*arguments).jaxpr


def bytes_of(tree: Any, whole: bool = False) -> int:
    """Return the bytes of a tree's arrays. Counts an array's part on one device or, if `whole`, the whole array."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        place = None if whole else getattr(leaf, "sharding", None)
        total += math.prod(place.shard_shape(leaf.shape) if place else leaf.shape) * np.dtype(leaf.dtype).itemsize
    return total


def _tokens(stage: staging.Stage) -> int:
    return stage.batch_size // stage.microbatches * stage.max_length
