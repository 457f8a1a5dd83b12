"""Read a checkpoint's contents, without its arrays' data, and seal it by a manifest: step, run, SHA-256 of its files.

The manifest reveals a flipped bit, which orbax restores without an error, and a checkpoint copied over another one.
"""

import json
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
import tensorstore
from etils import epath

from bertzoo.core import atomic
from bertzoo.core.documents import read_json
from bertzoo.core.errors import CheckpointError
from bertzoo.core.paths import is_url, to_path

SUFFIX = ".sha256.json"
RUN = "run-id"  # file beside the checkpoints with the identity that their manifests share
LOSS = "loss"  # the held-out metric that selects the best checkpoints
_MANIFEST = {"files": {str: str}, "step?": int, "run?": str}  # earlier versions wrote neither step nor run


class DamagedCheckpoint(CheckpointError):
    """A checkpoint that fails its checksums or, without a manifest, cannot be read."""


def path_of(checkpoint: Path) -> Path:
    """Return the manifest's path: checkpoints/400 -> checkpoints/400.sha256.json."""
    return checkpoint.with_name(checkpoint.name + SUFFIX)


def files_in(directory: Path) -> Iterator[Path]:
    """Yield the files under a directory, sorted."""
    for path in sorted(directory.iterdir()):  # rglob does not work in a bucket
        if path.is_dir():
            yield from files_in(path)
        else:
            yield path


def seal(checkpoint: Path) -> None:
    """Write the manifest of a committed checkpoint, atomically.

    If the file RUN is missing, writes it first, with the id from a manifest or, if none has an id, with a new one.
    """
    run = checkpoint.with_name(RUN)
    if not run.is_file():
        manifests = (_read(path) for path in sorted(checkpoint.parent.glob(f"*{SUFFIX}")))
        _write(run, next((content["run"] for content in manifests if "run" in content), uuid.uuid4().hex))
    files = {str(file.relative_to(checkpoint)): atomic.file_hash(file) for file in files_in(checkpoint)}
    content = {"step": int(checkpoint.name), "run": run.read_text(encoding="utf-8"), "files": files}
    _write(path_of(checkpoint), json.dumps(content, indent=1))


def _write(path: Path, text: str) -> None:
    if is_url(str(path)):  # writing an object in a bucket is atomic
        path.write_text(text)
    else:
        atomic.write_bytes(path, text.encode())


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, _MANIFEST)
    except ValueError as error:
        raise DamagedCheckpoint(f"the manifest {path} cannot be read ({error}). Use another checkpoint.") from error


def verify(checkpoint: Path, *, arrays: bool = True, unread: str | None = None) -> bool:
    """Verify a checkpoint against its manifest; return False if the run was killed before it wrote the manifest.

    arrays: also verify the bytes of array files; if False, only check that these files exist.
    unread: a top-level folder of the checkpoint, such as "training", whose files are not verified.

    Raises DamagedCheckpoint naming a file that is missing or changed, or a manifest that is unreadable or belongs to
    another step or run.
    """
    path = path_of(checkpoint)
    if not path.exists():
        return False
    content, run = _read(path), checkpoint.with_name(RUN)
    if str(content.get("step", checkpoint.name)) != checkpoint.name:
        raise another_step(checkpoint, content["step"])
    if "run" in content and run.is_file() and (run_id := run.read_bytes().decode(errors="replace")) != content["run"]:
        raise DamagedCheckpoint(
            f"{checkpoint} was copied from another run: its manifest has the run id {content['run']}, but the id in "
            f"{run} is {run_id[:40]}. Use another checkpoint."
        )
    for name, digest in content["files"].items():
        file = checkpoint / name
        if unread is not None and name.split("/")[0] == unread:
            continue
        if not file.is_file():
            raise DamagedCheckpoint(f"the checkpoint's file {file} is missing. Use another checkpoint.")
        # Orbax writes the arrays' bytes into directories named "d".
        if (arrays or file.parent.name != "d") and atomic.file_hash(file) != digest:
            raise DamagedCheckpoint(
                f"the checkpoint's file {file} is damaged: its SHA-256 is not that in {path}. Use another checkpoint."
            )
    return True


def another_step(checkpoint: Path, step: int) -> DamagedCheckpoint:
    """Return the error for a checkpoint whose `step` is not the step in its name."""
    return DamagedCheckpoint(
        f"{checkpoint} was copied from another checkpoint: it holds step {step}. Use another checkpoint."
    )


@dataclass(frozen=True, kw_only=True)
class StoredArray:
    shape: tuple[int, ...]
    dtype: str
    split: tuple[str | None, ...]  # mesh axes, such as "data,fsdp", of each dimension but trailing ones without any


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a checkpoint, without the arrays' data."""

    step: int
    position: dict[str, int]  # training stage and row that the run reads next
    loss: float | None  # held-out loss in nats, or None if it was not measured
    mesh: dict[str, int]  # {mesh axis: size} of the mesh that the checkpoint was saved on
    params: dict[str, StoredArray]  # by path
    training: dict[str, StoredArray]  # arrays of the optimiser's state, step, key and position, by path
    size: int  # bytes on disk

    @property
    def parameters(self) -> int:
        """The number of parameters, including padding rows of the vocabulary."""
        return sum(math.prod(array.shape) for array in self.params.values())


def read_contents(checkpoint: Path | str) -> Contents:
    """Read a checkpoint's contents, without the arrays' data, whose checksums only `verify` checks.

    Raises CheckpointError naming a file that is missing or damaged.
    """
    checkpoint = to_path(checkpoint)
    if not checkpoint.is_dir():
        raise CheckpointError(
            f"the checkpoint {checkpoint} does not exist. `bertzoo checkpoints` lists the checkpoints of a run."
        )
    verify(checkpoint, arrays=False)
    try:
        meshes: list[dict[str, int]] = []
        params, training = (stored_arrays(checkpoint / item, meshes) for item in ("params", "training"))
        position = [name for name in training if name.startswith("position/")]
        if (step := read_number(checkpoint, "step")) != int(checkpoint.name):
            raise another_step(checkpoint, step)
        return Contents(
            step=step,
            position={name.removeprefix("position/"): read_number(checkpoint, name) for name in position},
            loss=read_loss(checkpoint),
            mesh=max(meshes, key=len, default={}),
            params=params,
            training=training,
            size=sum(epath.Path(file).stat().length for file in files_in(checkpoint)),
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


def stored_arrays(item: Path, meshes: list[dict[str, int]]) -> dict[str, StoredArray]:
    """Return {path: array} for a checkpoint's folder `params` or `training`, without the arrays' data.

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


def read_number(checkpoint: Path, name: str) -> int:
    """Read a scalar in a checkpoint's `training` with tensorstore, because orbax would restore it onto a device.

    If the checkpoint is damaged, this may raise an error of any type.
    """
    item = checkpoint / "training"
    base = f"{item}/" if is_url(str(item)) else f"file://{item}/"
    kvstore = {"driver": "ocdbt", "base": base, "path": name.replace("/", ".") + "/"}
    return int(tensorstore.open({"driver": "zarr", "kvstore": kvstore}, open=True, read=True).result().read().result())
