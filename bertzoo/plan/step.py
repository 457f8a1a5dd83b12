"""The training step of a run on devices that need not be there: its mesh, its state, its batch, the step lowered."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax

from bertzoo.feed import example
from bertzoo.models import Compute, Model
from bertzoo.objectives import Masked, Replaced
from bertzoo.plan.chips import Topology
from bertzoo.recipe import Pretrain
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


def imagined(recipe: Pretrain, topology: Topology) -> jax.sharding.Mesh:
    """The recipe's mesh over a slice's devices; raises ConfigError as a run on them does."""
    return checked(recipe, sharding.make_mesh(recipe.mesh, [Place(index) for index in range(topology.devices)]))


def checked(recipe: Pretrain, mesh: jax.sharding.Mesh) -> jax.sharding.Mesh:
    """The mesh; raises ConfigError unless it divides the batch of every stage and every parameter."""
    for stage in recipe.stages:
        sharding.check_rows(stage.batch_size, stage.accumulate, mesh)
    fallbacks(recipe, mesh)
    return mesh


def fallbacks(recipe: Pretrain, mesh: jax.sharding.Mesh) -> list[str]:
    """In words, where parameters go that the mesh does not divide as it should; raises ConfigError where none will."""
    placed = sharding.placements(_boxed(recipe.objective, recipe.model, recipe.compute), mesh, recipe.mesh.fallbacks)
    leaves = jax.tree.leaves(placed, is_leaf=lambda leaf: isinstance(leaf, sharding.Placement))
    return [words for leaf in leaves for words in leaf.taken]


def abstract(recipe: Pretrain, index: int, mesh: jax.sharding.Mesh) -> State:
    """Shapes and places of a stage's state; raises ConfigError where the mesh does not divide a parameter."""
    objective = recipe.objective.build(recipe.model, recipe.compute)
    return states.abstract(objective, _optimizer(recipe, index), mesh, recipe.mesh.fallbacks)


def parameters(recipe: Pretrain) -> Any:
    """The shapes of the parameters, wherever they are."""
    return nn.unbox(_boxed(recipe.objective, recipe.model, recipe.compute))


@functools.lru_cache(maxsize=8)
def _boxed(objective: Masked | Replaced, model: Model, compute: Compute) -> Any:
    return jax.eval_shape(objective.build(model, compute).init, jax.random.key(0))


def lower(recipe: Pretrain, index: int, mesh: jax.sharding.Mesh) -> jax.stages.Lowered:
    """The step of a stage as a run on a TPU would compile it for the mesh's devices."""
    objective = recipe.objective.build(recipe.model, recipe.compute)
    stage, state = recipe.stages[index], abstract(recipe, index, mesh)
    rows = sharding.batch_sharding(mesh)
    batch = {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=rows)
        for name, array in example(recipe, index, stage.batch_size).items()
    }
    optimizer, places = _optimizer(recipe, index), states.shardings_of(state)
    step = make_train_step(objective, optimizer, accumulate=stage.accumulate, shardings=places)
    return step.lower(state, None, batch)  # type: ignore[attr-defined]  # it is jitted


def _optimizer(recipe: Pretrain, index: int):
    group = staging.schedule_group(recipe.stages, index)
    # Stacked as on a TPU, whatever this process runs on.
    return optim.build(recipe.optimizer, group.steps, group.learning_rate, stack=True)
