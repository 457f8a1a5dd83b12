"""Shardings of parameters and batches: the mesh, and one table from logical axis names to mesh axes."""

import dataclasses
import functools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bertzoo.core.errors import ConfigError
from bertzoo.nn.platform import AttentionKernel, Platform
from bertzoo.nn.random import row_seeds, words_of

LONGEST = 512  # keys of a row in bertzoo's attention kernel, whose blocks hold them all in VMEM
VMEM = 12 * 2**20  # bytes of the attention kernel's blocks; a program may use 16 MiB
_NO_KERNELS = ("TPU v2", "TPU v3")  # their matrix units take no bfloat16 operands from Pallas kernels
ROWS = ("data", "fsdp")  # the mesh axes over which a batch's rows are split

_WHOLE = ("embed", "position", "token_type", "head_size", "window", "pooled", "classes", "layers", "teacher", "pruned")
# Logical axis name that a module declares -> mesh axis, or None for an axis that is never split.
RULES: dict[str, str | None] = {
    "vocab": "tensor",
    "model": "fsdp",
    "heads": "tensor",
    "feed_forward": "tensor",
    "group_in": "fsdp",
    "group_out": "tensor",
    "bottleneck": "tensor",
    **dict.fromkeys(_WHOLE),
}
FALLBACKS = ("head_size", "feed_forward")  # dimensions to split instead of one that a mesh axis does not divide


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh:
    """Sizes of the mesh axes; -1 (at most once) takes the remaining devices.

    `data` spans all TPU slices. The other axes stay inside a slice, because the network between slices is slow.
    """

    RETIRED: ClassVar[dict[str, Any]] = {"fallbacks": None}

    data: int = -1  # replicas of the parameters, over which rows are split; a multiple of the number of TPU slices
    fsdp: int = 1  # devices over which rows and parameters are split
    tensor: int = 1  # devices that share each layer's matrix products

    def __post_init__(self):
        sizes = dataclasses.asdict(self)
        if sum(size == -1 for size in sizes.values()) > 1:
            raise ConfigError(f"more than one of {sizes} is -1, which takes the remaining devices. Keep one of them.")
        for name, size in sizes.items():
            if size < 1 and size != -1:
                raise ConfigError(f"{name}={size} is neither a positive size nor -1. Use -1 for the remaining devices.")


def make_mesh(config: Mesh, devices: Sequence[Any] | None = None) -> jax.sharding.Mesh:
    """Return the mesh (data, fsdp, tensor) over `devices`, by default all.

    The axis `data` is outermost over TPU slices or GPU hosts: JAX numbers both by `slice_index`. Raises ConfigError if
    the product of the sizes is not the number of devices, or if slices would have to share `fsdp` or `tensor`.
    """
    devices = jax.devices() if devices is None else devices
    sizes, slices = dataclasses.asdict(config), defaultdict(list)
    for device in devices:
        slices[getattr(device, "slice_index", 0)].append(device)
    fixed = math.prod(size for size in sizes.values() if size != -1)
    shape = tuple(len(devices) // fixed if size == -1 else size for size in sizes.values())
    # jax.make_mesh accepts a mesh smaller than the device count, so the product is checked here.
    if math.prod(shape) != len(devices):
        raise ConfigError(
            f"mesh data={config.data} fsdp={config.fsdp} tensor={config.tensor} does not fit {len(devices)} devices. "
            f"Choose sizes whose product is {len(devices)}."
        )
    data, rest = divmod(shape[0], len(slices))
    if rest:
        raise ConfigError(
            f"mesh data={shape[0]} is not divisible by {len(slices)} slices or GPU hosts of "
            f"{len(devices) // len(slices)} devices, which only `data` may span. Choose a smaller fsdp or tensor."
        )
    axes = {"axis_names": tuple(sizes), "axis_types": (AxisType.Auto,) * 3}
    grids = [jax.make_mesh((data, *shape[1:]), **axes, devices=slices[index]).devices for index in sorted(slices)]
    return jax.sharding.Mesh(np.concatenate(grids), **axes)


def one_device() -> jax.sharding.Mesh:
    """Return a mesh of one device of this process."""
    return make_mesh(Mesh(data=1), jax.local_devices()[:1])


@dataclasses.dataclass(frozen=True)
class Placement:
    """A parameter's sharding (`spec`), and a sentence for each of its fallbacks (`taken`)."""

    spec: PartitionSpec
    taken: tuple[str, ...]


def place(name: str, shape: Sequence[int], logical: Sequence[str | None], mesh: jax.sharding.Mesh) -> Placement:
    """Return a parameter's placement from its logical axis names, without mesh axes of size 1.

    If an axis does not divide its dimension, it splits the first dimension in FALLBACKS that is whole and that it
    divides. Otherwise, each device of the axis holds the whole parameter.

    Raises ValueError for unknown names or a wrong number of them (a mistake in a module). Raises ConfigError if the
    mesh would split two dimensions over one axis, or the vocabulary unevenly.
    """
    if len(logical) != len(shape):
        raise ValueError(
            f"parameter {name} of shape {tuple(shape)} has {len(logical)} names: {tuple(logical)}. Name each once."
        )
    spec: list[str | None] = [None] * len(shape)
    uneven: list[tuple[int, str]] = []
    for index, (size, axis_name) in enumerate(zip(shape, logical, strict=True)):
        if axis_name is not None and axis_name not in RULES:
            raise ValueError(
                f"parameter {name} of shape {tuple(shape)}: RULES lacks its logical name {axis_name!r}. Add it there."
            )
        axis = None if axis_name is None else RULES[axis_name]
        if axis is None or mesh.shape[axis] == 1:
            continue
        if axis in spec or axis in dict(uneven).values():
            raise ConfigError(
                f"parameter {name} of shape {tuple(shape)} would be split twice over the mesh axis {axis} "
                f"(logical names {tuple(logical)}). Set {axis}=1."
            )
        if size % mesh.shape[axis]:
            uneven.append((index, axis))
        else:
            spec[index] = axis
    taken = []
    for index, axis in uneven:
        count = mesh.shape[axis]
        problem = f"{logical[index]} of {shape[index]} is not divisible by {axis}={count}"
        if logical[index] == "vocab":
            raise ConfigError(
                f"parameter {name} of shape {tuple(shape)}: {problem}. Set mesh.{axis} to a divisor of {shape[index]}, "
                f"or set model.vocab_size to {-(-shape[index] // count) * count}."
            )
        fallbacks = [logical.index(dimension) for dimension in FALLBACKS if dimension in logical]
        fallback = next((i for i in fallbacks if spec[i] is None and shape[i] % count == 0), None)
        if fallback is None:
            taken.append(f"{name}: {problem}; every device holds the whole parameter")
        else:
            spec[fallback] = axis
            taken.append(f"{name}: {problem}; {logical[fallback]} ({shape[fallback]}) is split instead")
    return Placement(PartitionSpec(*spec), tuple(taken))


def placements(boxed: Any, mesh: jax.sharding.Mesh) -> Any:
    """Return the placement of each boxed array or shape, replicated without names; raises the errors of `place`."""

    def is_box(leaf):
        return isinstance(leaf, nn.meta.AxisMetadata)

    def placement(path, leaf):
        if not is_box(leaf):
            return Placement(PartitionSpec(), ())
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return place(name, leaf.unbox().shape, leaf.names, mesh)

    return jax.tree.map_with_path(placement, boxed, is_leaf=is_box)


def shardings(boxed: Any, mesh: jax.sharding.Mesh) -> Any:
    """Return the NamedSharding of every parameter; takes the arguments and raises the errors of `placements`."""
    return jax.tree.map(lambda placed: NamedSharding(mesh, placed.spec), placements(boxed, mesh))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _gather(leaf: jax.Array, whole: NamedSharding, split: NamedSharding) -> jax.Array:
    """Return an array with the sharding `whole`; its gradient has the sharding `split`."""
    return jax.lax.with_sharding_constraint(leaf, whole)


_gather.defvjp(
    lambda leaf, whole, split: (_gather(leaf, whole, split), None),
    lambda whole, split, _, gradient: (jax.lax.with_sharding_constraint(gradient, split),),
)


def as_used(params: Any, param_shardings: Any) -> Any:
    """Return parameters as a training step uses them: gathered over `fsdp`, with gradients that are split like them.

    Each device thus sums and updates only its own shard, as in ZeRO's second stage (Rajbhandari et al. 2020, §5).

    XLA would otherwise split the inputs of some products instead and move activations between devices. If all mesh axes
    have several devices and a batch has fewer tokens than a parameter has rows, the gradients would also be wrong
    without any error, as tokens return in another order (jax 0.10.2, tests/runs/test_devices.py).
    """

    def gathered(leaf: jax.Array, split: jax.sharding.Sharding) -> jax.Array:
        if not isinstance(split, NamedSharding) or "fsdp" not in split.spec:
            return leaf
        whole = PartitionSpec(*(None if axis == "fsdp" else axis for axis in split.spec))
        return _gather(leaf, NamedSharding(split.mesh, whole), split)

    return jax.tree.map(gathered, params, param_shardings)


def replicated(mesh: jax.sharding.Mesh) -> NamedSharding:
    """Return the sharding of an array that every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: jax.sharding.Mesh) -> NamedSharding:
    """Return the sharding of a batch: rows over data and fsdp."""
    return NamedSharding(mesh, PartitionSpec(ROWS))


def row_shards(mesh: jax.sharding.Mesh) -> int:
    """Return the number of shards into which a mesh splits the rows of a batch."""
    return math.prod(mesh.shape[axis] for axis in ROWS)


def local_shards(mesh: jax.sharding.Mesh) -> list[int]:
    """Return the sorted indices of the batch shards on this process's devices; `row_shards` is the number of shards."""
    shards, process = mesh.devices.reshape(row_shards(mesh), -1), jax.process_index()
    return [i for i, devices in enumerate(shards) if any(device.process_index == process for device in devices)]


def local_rows(batch_size: int, mesh: jax.sharding.Mesh) -> np.ndarray:
    """Return the sorted indices of a batch's rows that this process builds and holds."""
    return np.arange(batch_size).reshape(row_shards(mesh), -1)[local_shards(mesh)].reshape(-1)


def check_rows(batch_size: int, accumulate: int, mesh: jax.sharding.Mesh) -> None:
    """Raise ConfigError unless every microbatch divides evenly over the devices that share the rows."""
    shards = row_shards(mesh)
    if batch_size % (accumulate * shards):
        raise ConfigError(
            f"batch_size={batch_size} is not divisible by accumulate={accumulate} microbatches times {shards} devices "
            f"(data={mesh.shape['data']}, fsdp={mesh.shape['fsdp']}). Use a multiple of {accumulate * shards}."
        )


def platform_of(mesh: jax.sharding.Mesh) -> Platform:
    """Return the name of a mesh's kind of device and the kernel that computes attention there."""
    return Platform(mesh.devices.flat[0].platform, attention_kernel(mesh))


def attention_kernel(mesh: jax.sharding.Mesh, interpret: bool = False) -> AttentionKernel | None:
    """Return the kernel that computes attention in programs for a mesh, or None if these devices have no kernel.

    Each device computes its own rows (data, fsdp) and heads (tensor). interpret: run it without TPUs, for tests.
    """
    device = mesh.devices.flat[0]
    if not interpret and (device.platform != "tpu" or device.device_kind in _NO_KERNELS):
        return None
    from bertzoo.nn.fused_attention import block_bytes, fused_attention, long_attention

    def attention(query_BLHK, key_BMHK, value_BMHJ, mask_BM, dropout, train, reach):
        rows, heads = query_BLHK.shape[0], query_BLHK.shape[2]
        if rows % row_shards(mesh) or heads % mesh.shape["tensor"]:
            return None
        is_long = reach is not None or key_BMHK.shape[1] > LONGEST
        if is_long and (dropout.acts(train) or query_BLHK.dtype != jnp.bfloat16):
            return None  # JAX's kernel has no dropout, and multiplies float32 as bfloat16
        if not is_long and block_bytes(heads // mesh.shape["tensor"], query_BLHK, key_BMHK, value_BMHJ) > VMEM:
            return None
        key = dropout.random_key(train)

        def on_device(query_BLHK, key_BMHK, value_BMHJ, mask_BM, seeds_B, salt):
            if is_long:
                return long_attention(query_BLHK, key_BMHK, value_BMHJ, mask_BM, reach, interpret)
            first_head = jax.lax.axis_index("tensor") * query_BLHK.shape[2]
            inputs, rate = (query_BLHK, key_BMHK, value_BMHJ, mask_BM), 0.0 if key is None else dropout.rate
            return fused_attention(*inputs, rate, seeds_B, salt, first_head, interpret)

        seeds_B = jnp.zeros(rows, jnp.uint32) if key is None else row_seeds(key, rows)
        salt = jnp.uint32(0) if key is None else words_of(key)[1]
        vectors, row = PartitionSpec(ROWS, None, "tensor"), PartitionSpec(ROWS)
        split = jax.shard_map(
            on_device,
            mesh=mesh,
            in_specs=(vectors, vectors, vectors, row, row, PartitionSpec()),
            out_specs=vectors,
            check_vma=False,
        )
        return split(query_BLHK, key_BMHK, value_BMHJ, mask_BM, seeds_B, salt)

    return attention
