"""Lower training steps for devices that this machine lacks: build the mesh, choose the stages, lower their steps."""

import dataclasses

import jax

from bertzoo.planning.chips import Topology
from bertzoo.runs import stage_setups
from bertzoo.runs.batches import batch_shapes
from bertzoo.runs.step_memory import state_shapes, teacher_shapes
from bertzoo.runs.transfer_config import Recipe, Transfer
from bertzoo.train import sharding
from bertzoo.train import stages as staging
from bertzoo.train import state as states
from bertzoo.train.step import make_train_step


@dataclasses.dataclass(frozen=True)
class AbsentDevice:
    """A stand-in for a device, in a mesh that is used only for its shape."""

    id: int
    process_index: int = 0
    platform: str = "none"
    device_kind: str = "none"


def abstract_mesh(recipe: Recipe, topology: Topology) -> jax.sharding.Mesh:
    """Return the recipe's mesh over a slice's devices.

    Raises ConfigError if the mesh does not fit the devices, a batch or a parameter.
    """
    devices = [AbsentDevice(index) for index in range(topology.devices)]
    return check_mesh(recipe, sharding.make_mesh(recipe.mesh, devices))


def check_mesh(recipe: Recipe, mesh: jax.sharding.Mesh) -> jax.sharding.Mesh:
    """Return the mesh; raises ConfigError unless it divides every batch and an allowed dimension of every parameter."""
    for stage in recipe.stages:
        sharding.check_rows(stage.batch_size, stage.microbatches, mesh)
    mesh_fallbacks(recipe, mesh)
    return mesh


def mesh_fallbacks(recipe: Recipe, mesh: jax.sharding.Mesh) -> list[str]:
    """Return a sentence on each parameter that the mesh does not divide, and on the fallback that is used for it.

    Raises ConfigError if no fallback fits.
    """
    boxed = states.boxed_shapes(stage_setups.build_setups(recipe)[0].objective)
    if isinstance(recipe, Transfer):
        boxed = {**boxed, "teacher": stage_setups.teacher_of(recipe).shapes()}
    placements = sharding.placements(boxed, mesh, recipe.mesh.fallbacks)
    leaves = jax.tree.leaves(placements, is_leaf=lambda leaf: isinstance(leaf, sharding.Placement))
    return [words for leaf in leaves for words in leaf.taken]


def planned_stages(recipe: Recipe) -> list[int]:
    """Return the indices of the stages to plan: all stages but, of the layer-transfer stages, only three.

    These are the first, the middle and the last one.
    """
    groups = len(recipe.layer_groups) if isinstance(recipe, Transfer) else 0
    return sorted({0, (groups - 1) // 2, groups - 1} if groups else {}) + list(range(groups, len(recipe.stages)))


def lower(recipe: Recipe, index: int, mesh: jax.sharding.Mesh) -> jax.stages.Lowered:
    """Lower the training step of stage `index` for the mesh's devices."""
    stage, setup = recipe.stages[index], stage_setups.build_setups(recipe)[index]
    state, group = state_shapes(recipe, index, mesh), staging.schedule_group(recipe.stages, index)
    rows = sharding.batch_sharding(mesh)
    batch = {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=rows)
        for name, array in batch_shapes(recipe, index, stage.batch_size).items()
    }
    teacher = teacher_shapes(recipe, mesh)
    step = make_train_step(
        setup.trained,
        setup.transformation(group.steps, group.learning_rate),
        accumulate=stage.microbatches,
        shardings=states.shardings_of(state),
        frozen_shardings=states.shardings_of(teacher),
    )
    return step.lower(state, teacher, batch)  # type: ignore[attr-defined]  # it is jitted
