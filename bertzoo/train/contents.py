"""Read the names, shapes, dtypes and shardings of a checkpoint's arrays, without their data or a device."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
import tensorstore
from etils import epath

from bertzoo.core.documents import read_json
from bertzoo.core.errors import CheckpointError
from bertzoo.core.paths import is_url, place
from bertzoo.train import manifest

LOSS = "loss"  # the held-out figure that selects the best checkpoints


@dataclass(frozen=True, kw_only=True)
class StoredArray:
    """An array on disk.

    split: for each dimension, the mesh axes that split it, such as "data,fsdp", or None. Trailing dimensions that were
    not split may be missing.
    """

    shape: tuple[int, ...]
    dtype: str
    split: tuple[str | None, ...]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a checkpoint, without the arrays' data.

    position: training stage and row that the run reads next.
    loss: held-out loss in nats, or None if it was not measured.
    mesh: {mesh axis: size} of the mesh that the checkpoint was saved on.
    params: parameters by path.
    training: arrays of the optimiser's state, step, key and position, by path.
    size: bytes on disk.
    """

    step: int
    position: dict[str, int]
    loss: float | None
    mesh: dict[str, int]
    params: dict[str, StoredArray]
    training: dict[str, StoredArray]
    size: int

    @property
    def parameters(self) -> int:
        """The number of parameters, including padding rows of the vocabulary."""
        return sum(math.prod(array.shape) for array in self.params.values())


def read_contents(checkpoint: Path | str) -> Contents:
    """Read a checkpoint's contents, without the arrays' data.

    Verifies the checksums of all files but those with the arrays' data, which only `manifest.verify` checks. Raises
    CheckpointError naming a file that is missing or damaged.
    """
    checkpoint = place(checkpoint)
    if not checkpoint.is_dir():
        raise CheckpointError(
            f"the checkpoint {checkpoint} does not exist. `bertzoo checkpoints` lists the checkpoints of a run."
        )
    manifest.verify(checkpoint, arrays=False)
    try:
        meshes: list[dict[str, int]] = []
        params, training = (stored_arrays(checkpoint / item, meshes) for item in ("params", "training"))
        position = [name for name in training if name.startswith("position/")]
        check_step(checkpoint)
        return Contents(
            step=_read_number(checkpoint, "step"),
            position={name.removeprefix("position/"): _read_number(checkpoint, name) for name in position},
            loss=read_loss(checkpoint),
            mesh=max(meshes, key=len, default={}),
            params=params,
            training=training,
            size=sum(epath.Path(file).stat().length for file in manifest.files_in(checkpoint)),
        )
    except CheckpointError:
        raise
    except Exception as error:  # orbax and tensorstore raise many types for a damaged file
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise CheckpointError(
            f"the checkpoint {checkpoint} cannot be read ({reason}). Use another checkpoint."
        ) from error


def read_loss(checkpoint: Path) -> float | None:
    """Return the held-out loss saved with a checkpoint, or None; raises CheckpointError if its file is damaged."""
    file = checkpoint / "metrics" / "metrics"
    try:
        return float(read_json(file, {LOSS: float})[LOSS]) if file.is_file() else None
    except ValueError as error:
        raise CheckpointError(
            f"the checkpoint's file {file} cannot be read ({error}). Use another checkpoint."
        ) from error


def check_step(checkpoint: Path) -> None:
    """Raise CheckpointError if a checkpoint's step is not the step in its name.

    If the checkpoint is damaged, reading it may raise an error of any type.
    """
    if (step := _read_number(checkpoint, "step")) != int(checkpoint.name):
        raise manifest.another_step(checkpoint, step)


def stored_arrays(item: Path, meshes: list[dict[str, int]]) -> dict[str, StoredArray]:
    """Return {path: array} for one folder of a checkpoint, without the arrays' data.

    item: the checkpoint's folder `params` or `training`.
    meshes: a list that receives {mesh axis: size} for each array that was saved on a mesh.
    """
    handler = ocp.PyTreeCheckpointHandler(  # the default options would ask jax for devices, which a run may be using
        multiprocessing_options=ocp.options.MultiprocessingOptions(primary_host=None), enable_pinned_host_transfer=False
    )
    arrays: dict[str, StoredArray] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(handler.metadata(epath.Path(item)).tree):
        if not isinstance(leaf, ocp.metadata.ArrayMetadata):
            continue
        spec: Any = ()
        if isinstance(leaf.sharding, ocp.metadata.NamedShardingMetadata):
            spec = leaf.sharding.partition_spec
            meshes.append(dict(zip(leaf.sharding.axis_names, map(int, leaf.sharding.shape), strict=True)))
        split = tuple(",".join(axes) if isinstance(axes, tuple | list) else axes for axes in spec)
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        arrays[name] = StoredArray(shape=tuple(leaf.shape), dtype=str(leaf.dtype), split=split)
    return arrays


def _read_number(checkpoint: Path, name: str) -> int:
    """Read a scalar in a checkpoint's `training` with tensorstore, because orbax would restore it onto a device."""
    item = checkpoint / "training"
    base = f"{item}/" if is_url(str(item)) else f"file://{item}/"
    kvstore = {"driver": "ocdbt", "base": base, "path": name.replace("/", ".") + "/"}
    return int(tensorstore.open({"driver": "zarr", "kvstore": kvstore}, open=True, read=True).result().read().result())
