"""Read weights from safetensors (one file or shards) or, if torch is installed, from pickles; write safetensors."""

import hashlib
import math
from pathlib import Path

import numpy as np
import safetensors
from safetensors.numpy import save, save_file

from bertzoo.conversion.rules import Tensors
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.core.memory import check_available

SAFE, INDEX, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
_LARGEST_HEADER = 4 << 20  # bytes; 100 for each tensor, which takes 1,700 in memory
_METADATA = {"format": "pt"}
_FLOATS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_INTEGERS = {"I64": np.dtype("<i8"), "I32": np.dtype("<i4")}  # such as embeddings.position_ids of old files


def read_weights(directory: Path) -> tuple[Tensors, Path]:
    """Return all tensors of a Hugging Face directory, floats as float32, and the file to name in messages.

    Raises UserError if no file holds weights, or a file is damaged or holds NaN or infinity.
    """
    if (directory / SAFE).is_file():
        return read_safetensors(directory / SAFE), directory / SAFE
    if (directory / INDEX).is_file():
        return _read_shards(directory / INDEX), directory / INDEX
    if (directory / PICKLE).is_file():
        from bertzoo.conversion.pickled import read_pickled

        return check_finite(read_pickled(directory / PICKLE), directory / PICKLE), directory / PICKLE
    raise UserError(
        f"{directory} holds no weights: {SAFE}, {INDEX} and {PICKLE} are all missing. Download the model again."
    )


def read_safetensors(path: Path, integers: bool = True) -> Tensors:
    """Return the tensors of a safetensors file, floats as float32.

    integers: whether the file may also hold integers. Raises UserError naming the file and the tensor that cannot be
    used.
    """
    shapes = tensor_shapes(path)
    check_available(path.stat().st_size + sum(4 * math.prod(shape) for shape in shapes.values()), str(path))
    try:
        entries = safetensors.deserialize(path.read_bytes())
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}. Download it again.") from error
    tensors: Tensors = {}
    for name, entry in entries:
        kind, data = entry["dtype"], entry["data"]
        if integers and kind in _INTEGERS:
            tensors[name] = np.frombuffer(data, _INTEGERS[kind]).reshape(entry["shape"])
            continue
        if kind not in _FLOATS:
            raise UserError(f"{path}: the tensor {name} is of type {kind}. Save it as one of {', '.join(_FLOATS)}.")
        array = np.frombuffer(data, _FLOATS[kind]).reshape(entry["shape"])
        # bfloat16 is the upper half of a float32.
        tensors[name] = (array.astype("<u4") << 16).view("<f4") if kind == "BF16" else array.astype(np.float32)
    return check_finite(tensors, path)


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return tensors' shapes by name from a safetensors header; raises UserError unless they fit the file's size."""
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
    if header > _LARGEST_HEADER:
        raise UserError(
            f"{path} is damaged or not a safetensors file: its header has {header:,} bytes, more than "
            f"{_LARGEST_HEADER:,}. Download it again."
        )
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}. Download it again.") from error


def _read_shards(index: Path) -> Tensors:
    try:
        places: dict[str, str] = read_json(index, {"weight_map": {str: str}})["weight_map"]
    except ValueError as error:
        raise UserError(f"{index} is damaged: {error}. Download it again.") from error
    tensors: Tensors = {}
    for file in sorted(set(places.values())):
        path = index.parent / file
        if Path(file).name != file:
            raise UserError(
                f"{index} names {file}, but may only name files in its own directory. Download the model again."
            )
        if not path.is_file():
            raise UserError(f"{index} names {file}, which does not exist. Download the missing file.")
        for name, array in read_safetensors(path).items():
            if places.get(name) != file:
                raise UserError(
                    f"{path} holds the tensor {name}, which {index.name} does not place there. Download both files "
                    "again."
                )
            tensors[name] = array
    if missing := sorted(places.keys() - tensors.keys()):
        raise UserError(
            f"{index} places the tensor {missing[0]} in {places[missing[0]]}, which does not hold it. Download both "
            "files again."
        )
    return tensors


def check_finite(tensors: Tensors, path: Path) -> Tensors:
    """Return the tensors unchanged; raises UserError naming the first tensor with NaN or infinity."""
    for name, array in tensors.items():
        if not np.isfinite(array).all():
            raise UserError(
                f"{path}: the tensor {name} holds values that are not finite (NaN or infinity). Use a checkpoint "
                "from before training diverged."
            )
    return tensors


def write_safetensors(tensors: Tensors, path: Path) -> None:
    """Write a safetensors file with transformers' metadata; raises OSError if that fails."""
    try:
        save_file(dict(sorted(tensors.items())), path, metadata=_METADATA)
    except safetensors.SafetensorError as error:
        raise OSError(str(error)) from error


def digest(tensors: Tensors) -> str:
    """Return the SHA-256 of the file that `write_safetensors` writes."""
    return hashlib.sha256(save(dict(sorted(tensors.items())), metadata=_METADATA)).hexdigest()
