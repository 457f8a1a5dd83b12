"""The training step of a run on devices that need not be there: its mesh, its state, its batch, the step lowered."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
from jax.extend import core

from bertzoo.planning.chips import Topology
from bertzoo.runs import phases
from bertzoo.runs.batches import batch_shapes
from bertzoo.runs.transfer_config import Recipe, Transfer
from bertzoo.train import optim, sharding
from bertzoo.train import stages as staging
from bertzoo.train import state as states
from bertzoo.train.state import State
from bertzoo.train.step import make_train_step


@dataclasses.dataclass(frozen=True)
class Place:
    """Stands for a device in a mesh of which only the shape is asked for."""

    id: int
    process_index: int = 0
    platform: str = "none"
    device_kind: str = "none"


def imagined(recipe: Recipe, topology: Topology) -> jax.sharding.Mesh:
    """The recipe's mesh over a slice's devices; raises ConfigError as a run on them does."""
    return checked(recipe, sharding.make_mesh(recipe.mesh, [Place(index) for index in range(topology.devices)]))


def checked(recipe: Recipe, mesh: jax.sharding.Mesh) -> jax.sharding.Mesh:
    """The mesh; raises ConfigError unless it divides the batch of every stage and every parameter."""
    for stage in recipe.stages:
        sharding.check_rows(stage.batch_size, stage.accumulate, mesh)
    fallbacks(recipe, mesh)
    return mesh


def fallbacks(recipe: Recipe, mesh: jax.sharding.Mesh) -> list[str]:
    """In words, where parameters go that the mesh does not divide as it should; raises ConfigError where none will."""
    boxed = _boxed(recipe)
    if isinstance(recipe, Transfer):
        boxed = {**boxed, "teacher": phases.teacher_of(recipe).shapes()}
    placed = sharding.placements(boxed, mesh, recipe.mesh.fallbacks)
    leaves = jax.tree.leaves(placed, is_leaf=lambda leaf: isinstance(leaf, sharding.Placement))
    return [words for leaf in leaves for words in leaf.taken]


def planned(recipe: Recipe) -> list[int]:
    """The stages that are looked at: of those that differ in depth alone, the first, the middle and the last."""
    lessons = len(recipe.layer_groups) if isinstance(recipe, Transfer) else 0
    return sorted({0, (lessons - 1) // 2, lessons - 1} if lessons else {}) + list(range(lessons, len(recipe.stages)))


def abstract(recipe: Recipe, index: int, mesh: jax.sharding.Mesh) -> State:
    """Shapes and places of a stage's state; raises ConfigError where the mesh does not divide a parameter."""
    return states.abstract(phases.of(recipe)[index].objective, _optimizer(recipe, index), mesh, recipe.mesh.fallbacks)


def frozen(recipe: Recipe, mesh: jax.sharding.Mesh) -> Any:
    """Shapes and places of a teacher's parameters; None without one."""
    return phases.teacher_shapes(recipe, mesh) if isinstance(recipe, Transfer) else None


def parameters(recipe: Recipe) -> Any:
    """The shapes of the parameters, wherever they are."""
    return nn.unbox(_boxed(recipe))


@functools.lru_cache(maxsize=16)
def traced(recipe: Recipe, index: int, rows: int) -> core.Jaxpr:
    """The jaxpr of what a stage's step learns by of so many rows: (parameters, teacher, batch), wherever they are.

    Kept, as plans for several meshes and what is advised ask for the same.
    """
    teacher = phases.teacher_shapes(recipe) if isinstance(recipe, Transfer) else None
    return jax.make_jaxpr(phases.gradient_function(recipe, index))(
        parameters(recipe), teacher, batch_shapes(recipe, index, rows)
    ).jaxpr


def _boxed(recipe: Recipe) -> Any:
    return states.boxed_shapes(phases.of(recipe)[0].objective)


def lower(recipe: Recipe, index: int, mesh: jax.sharding.Mesh) -> jax.stages.Lowered:
    """The step of a stage as a run on a TPU would compile it for the mesh's devices."""
    stage, state = recipe.stages[index], abstract(recipe, index, mesh)
    rows = sharding.batch_sharding(mesh)
    batch = {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=rows)
        for name, array in batch_shapes(recipe, index, stage.batch_size).items()
    }
    objective, optimizer, places = (
        phases.of(recipe)[index].trained,
        _optimizer(recipe, index),
        states.shardings_of(state),
    )
    fixed = frozen(recipe, mesh)
    step = make_train_step(
        objective,
        optimizer,
        accumulate=stage.accumulate,
        shardings=places,
        frozen_shardings=states.shardings_of(fixed),
    )
    return step.lower(state, fixed, batch)  # type: ignore[attr-defined]  # it is jitted


def _optimizer(recipe: Recipe, index: int):
    group, phase = staging.schedule_group(recipe.stages, index), phases.of(recipe)[index]
    # Stacked as on a TPU, whatever this process runs on.
    return optim.build(phase.optimizer, group.steps, group.learning_rate, stack=True, rates=phase.rates)
