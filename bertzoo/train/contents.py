"""What a checkpoint holds, read from its files alone: no arrays but the few numbers of the position, and no devices."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorstore
from etils import epath

from bertzoo.core.errors import CheckpointError
from bertzoo.core.paths import is_url, place
from bertzoo.train import manifest

LOSS = "loss"  # the held-out figure by which the best checkpoints are kept
_TREE, _PLACES = "_METADATA", "_sharding"
_INDEX = (_TREE, _PLACES, "manifest.ocdbt", "metrics")  # the names of the files that are read here
_LEAF = "jax.Array"  # what orbax calls an array; the other entries of its tree are empty


@dataclass(frozen=True, kw_only=True)
class Array:
    """One array on disk; split: for each dimension the mesh axes that it was split over, such as "data,fsdp", or None.

    The last dimensions that were whole may be left out of `split`.
    """

    shape: tuple[int, ...]
    dtype: str
    split: tuple[str | None, ...]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """A checkpoint: step and data position, held-out loss if it was measured, the mesh it was saved on, its arrays.

    params: by path, as everywhere; training: by path, the optimiser's state and the numbers that say where a run is;
    size: bytes on disk.
    """

    step: int
    position: dict[str, int]
    loss: float | None
    mesh: dict[str, int]
    params: dict[str, Array]
    training: dict[str, Array]
    size: int


def read(checkpoint: Path | str) -> Contents:
    """Read a checkpoint without its arrays; that these are whole too is seen by `manifest.verify`.

    Raises CheckpointError naming the file where there is none or what is read here is damaged.
    """
    checkpoint = place(checkpoint)
    if not checkpoint.is_dir():
        raise CheckpointError(f"there is no checkpoint {checkpoint}")
    manifest.verify(checkpoint, _INDEX)
    try:
        meshes: list[dict[str, int]] = []
        params, training = (_arrays(checkpoint / item, meshes) for item in ("params", "training"))
        names = [name for name in training if name.startswith("position/")]
        return Contents(
            step=_number(checkpoint, "step"),
            position={name.removeprefix("position/"): _number(checkpoint, name) for name in names},
            loss=loss_of(checkpoint),
            mesh=max(meshes, key=len, default={}),
            params=params,
            training=training,
            size=sum(epath.Path(file).stat().length for file in manifest.files_of(checkpoint)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise CheckpointError(f"the checkpoint {checkpoint} cannot be read ({said})") from error


def loss_of(checkpoint: Path) -> float | None:
    """The held-out loss with which a checkpoint was saved, None where there is none; CheckpointError where damaged."""
    file = checkpoint / "metrics" / "metrics"
    try:
        return float(json.loads(file.read_text(encoding="utf-8"))[LOSS]) if file.is_file() else None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the checkpoint's file {file} cannot be read ({error})") from error


def _arrays(item: Path, meshes: list[dict[str, int]]) -> dict[str, Array]:
    """The arrays of an item by path; adds the mesh of each to `meshes`."""
    tree = json.loads((item / _TREE).read_text(encoding="utf-8"))["tree_metadata"]
    coded = json.loads((item / _PLACES).read_text(encoding="utf-8")) if (item / _PLACES).is_file() else {}
    places = {base64.b64decode(name).decode(): json.loads(place) for name, place in coded.items()}
    found: dict[str, Array] = {}
    for entry in tree.values():
        if entry["value_metadata"]["value_type"] != _LEAF:
            continue
        keys = [key["key"] for key in entry["key_metadata"]]
        store, place = _open(item, keys), places.get(".".join(keys), {})
        meshes.append(dict(zip(place.get("axis_names", ()), place.get("shape", ()), strict=True)))
        found["/".join(keys)] = Array(
            shape=tuple(store.shape), dtype=store.dtype.name, split=tuple(map(_axes, place.get("partition_spec", ())))
        )
    return found


def _axes(entry: str | list[str] | None) -> str | None:
    return ",".join(entry) if isinstance(entry, list) else entry


def _open(item: Path, keys: list[str]) -> Any:
    """An array of an item, of which nothing but its shape and dtype is read yet."""
    base = f"{item}/" if is_url(str(item)) else f"file://{item}/"
    kvstore = {"driver": "ocdbt", "base": base, "path": ".".join(keys) + "/"}
    return tensorstore.open({"driver": "zarr", "kvstore": kvstore}, open=True, read=True).result()


def _number(checkpoint: Path, name: str) -> int:
    return int(_open(checkpoint / "training", name.split("/")).read().result())
