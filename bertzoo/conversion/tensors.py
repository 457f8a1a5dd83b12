"""Tensor files: safetensors in one file or in shards, and torch's older pickles where torch is installed."""

import hashlib
import json
from pathlib import Path

import numpy as np
import safetensors
from safetensors.numpy import save, save_file

from bertzoo.conversion.table import Tensors
from bertzoo.core.errors import UserError

SAFE, INDEX, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
_METADATA = {"format": "pt"}
_FLOATS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_INTEGERS = {"I64": np.dtype("<i8"), "I32": np.dtype("<i4")}  # such as embeddings.position_ids of old files


def read_directory(directory: Path) -> tuple[Tensors, Path]:
    """All tensors of a Hugging Face directory in float32, and the file that messages should name.

    Raises UserError where there is none, one is damaged, or its numbers are not numbers.
    """
    if (directory / SAFE).is_file():
        return read(directory / SAFE), directory / SAFE
    if (directory / INDEX).is_file():
        return _sharded(directory / INDEX), directory / INDEX
    if (directory / PICKLE).is_file():
        from bertzoo.conversion.pickled import read_pickled

        return finite(read_pickled(directory / PICKLE), directory / PICKLE), directory / PICKLE
    raise UserError(f"{directory} holds no weights: neither {SAFE} nor {INDEX} nor {PICKLE} is there")


def read(path: Path, integers: bool = True) -> Tensors:
    """The tensors of a safetensors file, floats as float32; of parameters alone none may hold integers.

    Raises UserError naming the file, and the tensor that cannot be used.
    """
    try:
        entries = safetensors.deserialize(path.read_bytes())
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}") from error
    found: Tensors = {}
    for name, entry in entries:
        kind, data = entry["dtype"], entry["data"]
        if integers and kind in _INTEGERS:
            found[name] = np.frombuffer(data, _INTEGERS[kind]).reshape(entry["shape"])
            continue
        if kind not in _FLOATS:
            raise UserError(f"{path}: the tensor {name} is of type {kind}; only {', '.join(_FLOATS)} can be read")
        array = np.frombuffer(data, _FLOATS[kind]).reshape(entry["shape"])
        # bfloat16 is the upper half of a float32.
        found[name] = (array.astype("<u4") << 16).view("<f4") if kind == "BF16" else array.astype(np.float32)
    return finite(found, path)


def _sharded(index: Path) -> Tensors:
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        wrong = next((name for name, file in places.items() if not isinstance(file, str)), None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{index} is damaged: {error}") from error
    if wrong is not None:
        raise UserError(f"{index} is damaged: it places the tensor {wrong} in {places[wrong]!r}, not in a file")
    found: Tensors = {}
    for file in sorted(set(places.values())):
        path = index.parent / file
        if Path(file).name != file:
            raise UserError(f"{index} names {file}, which is not the name of a file beside it")
        if not path.is_file():
            raise UserError(f"{index} names {file}, which does not exist")
        for name, array in read(path).items():
            if places.get(name) != file:
                raise UserError(f"{path} holds the tensor {name}, which {index.name} does not place there")
            found[name] = array
    if missing := sorted(places.keys() - found.keys()):
        raise UserError(f"{index} places the tensor {missing[0]} in {places[missing[0]]}, which does not hold it")
    return found


def finite(tensors: Tensors, path: Path) -> Tensors:
    for name, array in tensors.items():
        if not np.isfinite(array).all():
            raise UserError(f"{path}: the tensor {name} holds values that are not finite numbers")
    return tensors


def write(tensors: Tensors, path: Path) -> None:
    """Write a safetensors file, as transformers expects it; raises OSError where that fails."""
    try:
        save_file(dict(sorted(tensors.items())), path, metadata=_METADATA)
    except safetensors.SafetensorError as error:
        raise OSError(str(error)) from error


def digest(tensors: Tensors) -> str:
    """The sha256 of the file that `write` makes of these tensors."""
    return hashlib.sha256(save(dict(sorted(tensors.items())), metadata=_METADATA)).hexdigest()
