"""Where parameters and batches live: a mesh, one table from logical names to mesh axes, a strict translator."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
from flax import linen as nn
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bertzoo.errors import ConfigError

ROWS = ("data", "fsdp")  # the mesh axes over which a batch's rows are split

# Logical axis name, as the modules declare it -> mesh axis, or None for an axis that is never split.
RULES: dict[str, str | None] = {
    "vocab": "tensor",
    "embed": None,
    "position": None,
    "token_type": None,
    "model": "fsdp",
    "heads": "tensor",
    "head_size": None,
    "feed_forward": "tensor",
    "window": None,
    "group_in": "fsdp",
    "group_out": "tensor",
    "pooled": None,
    "classes": None,
    "bottleneck": "tensor",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh:
    """How the devices are arranged; -1 (at most once) takes what the others leave."""

    data: int = -1
    fsdp: int = 1
    tensor: int = 1

    def __post_init__(self):
        sizes = dataclasses.asdict(self)
        if sum(size == -1 for size in sizes.values()) > 1:
            raise ConfigError(f"more than one of {sizes} is -1, which takes what the others leave")
        for name, size in sizes.items():
            if size < 1 and size != -1:
                raise ConfigError(f"{name}={size} is neither a size nor -1")


def make_mesh(config: Mesh, devices: Sequence[Any] | None = None) -> jax.sharding.Mesh:
    """The mesh (data, fsdp, tensor) over all devices, or over those given.

    Raises ConfigError when the sizes do not multiply to the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    sizes = dataclasses.asdict(config)
    known = math.prod(size for size in sizes.values() if size != -1)
    shape = tuple(len(devices) // known if size == -1 else size for size in sizes.values())
    # jax.make_mesh accepts a mesh smaller than the device count, so the product is checked here.
    if math.prod(shape) != len(devices):
        raise ConfigError(
            f"mesh data={config.data} fsdp={config.fsdp} tensor={config.tensor} does not fit {len(devices)} devices"
        )
    return jax.make_mesh(shape, tuple(sizes), axis_types=(AxisType.Auto,) * 3, devices=devices)


def partition(name: str, shape: Sequence[int], logical: Sequence[str | None], mesh: jax.sharding.Mesh) -> PartitionSpec:
    """Translate a parameter's logical axis names; mesh axes of size 1 split nothing and are left out.

    Raises ValueError for names that are not in the table or not one a dimension (a mistake in a module), ConfigError
    when the mesh splits two dimensions over one axis or a dimension unevenly.
    """
    if len(logical) != len(shape):
        raise ValueError(f"parameter {name} of shape {tuple(shape)} has {len(logical)} logical names: {tuple(logical)}")
    spec: list[str | None] = []
    for size, axis_name in zip(shape, logical, strict=True):
        if axis_name is not None and axis_name not in RULES:
            raise ValueError(f"parameter {name} of shape {tuple(shape)}: no rule for the logical name {axis_name!r}")
        axis = None if axis_name is None else RULES[axis_name]
        axis = axis if axis and mesh.shape[axis] > 1 else None
        if axis and axis in spec:
            raise ConfigError(
                f"parameter {name} of shape {tuple(shape)} would be split twice over the mesh axis {axis} "
                f"(logical names {tuple(logical)}); set {axis}=1"
            )
        if axis and size % mesh.shape[axis]:
            raise ConfigError(
                f"parameter {name} of shape {tuple(shape)}: dimension {axis_name} of {size} is not divisible by "
                f"the mesh axis {axis}={mesh.shape[axis]}; choose a mesh whose {axis} divides it"
            )
        spec.append(axis)
    return PartitionSpec(*spec)


def shardings(boxed: Any, mesh: jax.sharding.Mesh) -> Any:
    """The sharding of every parameter, from boxed (`nn.with_logical_partitioning`) arrays or their shapes.

    A leaf without logical names is replicated. Raises as `partition` does.
    """

    def is_box(leaf):
        return isinstance(leaf, nn.meta.AxisMetadata)

    def one(path, leaf):
        if not is_box(leaf):
            return replicated(mesh)
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return NamedSharding(mesh, partition(name, leaf.unbox().shape, leaf.names, mesh))

    return jax.tree.map_with_path(one, boxed, is_leaf=is_box)


def replicated(mesh: jax.sharding.Mesh) -> NamedSharding:
    """The sharding of what every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: jax.sharding.Mesh) -> NamedSharding:
    """The sharding of a batch: rows over data and fsdp."""
    return NamedSharding(mesh, PartitionSpec(ROWS))


def check_rows(batch_size: int, accumulate: int, mesh: jax.sharding.Mesh) -> None:
    """Raise ConfigError unless every microbatch divides evenly over the devices that share the rows."""
    shards = math.prod(mesh.shape[axis] for axis in ROWS)
    if batch_size % (accumulate * shards):
        raise ConfigError(
            f"batch_size={batch_size} in accumulate={accumulate} microbatches is not divisible by the {shards} devices "
            f"of the mesh (data={mesh.shape['data']}, fsdp={mesh.shape['fsdp']}); "
            f"make it a multiple of {accumulate * shards}"
        )
