"""Read weights from safetensors (one file or shards) or, if torch is installed, from pickles; write safetensors."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import save_file

from bertzoo.conversion.rules import Tensors
from bertzoo.core.documents import parse_json, read_json
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
    check_available(sum(4 * math.prod(shape) for shape in shapes.values()), str(path))
    tensors: Tensors = {}
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = parse_json(file.read(length))
        # One by one: the whole file beside its arrays would double the peak of a large model's reading.
        for name, shape in shapes.items():
            kind, start = header[name]["dtype"], 8 + length + header[name]["data_offsets"][0]
            if not (dtype := {**_FLOATS, **(_INTEGERS if integers else {})}.get(kind)):
                raise UserError(f"{path}: the tensor {name} is of type {kind}. Save it as one of {', '.join(_FLOATS)}.")
            array = np.fromfile(path, dtype, math.prod(shape), offset=start).reshape(shape)
            if kind == "BF16":  # the upper half of a float32
                array = (array.astype("<u4") << 16).view("<f4")
            tensors[name] = array if kind in _INTEGERS else array.astype(np.float32, copy=False)
    except ValueError as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}. Download it again.") from error
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
                    f"{path} holds the tensor {name}, which {index.name} places elsewhere. Download both files again."
                )
            tensors[name] = array
    if missing := sorted(places.keys() - tensors.keys()):
        raise UserError(
            f"{index} places the tensor {missing[0]} in {places[missing[0]]}, which lacks it. Download both again."
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
    """Return the SHA-256 of the file that `write_safetensors` writes for float32 tensors, without a copy of them."""
    header: dict[str, Any] = {"__metadata__": _METADATA}
    end = 0
    for name, array in sorted(tensors.items()):
        start, end = end, end + array.nbytes
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    hashed = hashlib.sha256(len(text).to_bytes(8, "little") + text)
    for _, array in sorted(tensors.items()):
        hashed.update(np.ascontiguousarray(array, "<f4").data)
    return hashed.hexdigest()
