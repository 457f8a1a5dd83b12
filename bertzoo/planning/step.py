"""Build runs on devices that this machine lacks, and choose the stages to plan."""

import dataclasses

import jax

from bertzoo.planning.chips import Topology
from bertzoo.runs.configs import Recipe, Transfer
from bertzoo.runs.experiments import build_experiment
from bertzoo.train import sharding
from bertzoo.train.experiment import Experiment


@dataclasses.dataclass(frozen=True)
class AbsentDevice:
    """A stand-in for a device, in a mesh that is used only for its shape."""

    id: int
    process_index: int = 0
    platform: str = "none"
    device_kind: str = "none"


def build_on_slice(recipe: Recipe, topology: Topology) -> Experiment:
    """Build the run on a slice's devices; raises ConfigError if they do not fit the mesh, a batch or a parameter."""
    devices = [AbsentDevice(index) for index in range(topology.devices)]
    return build_experiment(recipe, sharding.make_mesh(recipe.mesh, devices))


def mesh_fallbacks(built: Experiment) -> list[str]:
    """Return a sentence on each parameter that the mesh does not divide, and on the fallback that is used for it."""
    placements = sharding.placements(built.named_boxed, built.mesh, built.fallbacks)
    leaves = jax.tree.leaves(placements, is_leaf=lambda leaf: isinstance(leaf, sharding.Placement))
    return [words for leaf in leaves for words in leaf.taken]


def planned_stages(recipe: Recipe) -> list[int]:
    """Return the indices of the stages to plan: all stages but, of the layer-transfer stages, only three.

    These are the first, the middle and the last one.
    """
    groups = len(recipe.layer_groups) if isinstance(recipe, Transfer) else 0
    return sorted({0, (groups - 1) // 2, groups - 1} if groups else {}) + list(range(groups, len(recipe.stages)))
