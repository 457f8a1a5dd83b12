# pyright: reportMissingImports=false
"""Read weights from safetensors (one file or shards) or, if torch is installed, from pickles; write safetensors."""

import hashlib
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import jax  # noqa: F401 (it registers numpy's bfloat16, which safetensors returns)
import numpy as np
import safetensors
from safetensors.numpy import save_file

from bertzoo.conversion.rules import Tensors
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.core.machine import check_available, limited_growth

SAFE, INDEX, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
_METADATA = {"format": "pt"}
_FLOATS = ("F32", "F16", "BF16")


def read_weights(directory: Path) -> tuple[Tensors, Path]:
    """Return a directory's tensors, floats as float32, and their file; raises UserError for missing or damaged ones."""
    if (directory / SAFE).is_file():
        return read_safetensors(directory / SAFE), directory / SAFE
    if (index := directory / INDEX).is_file():
        files, tensors = read_json(index, {"weight_map": {str: str}}, "Download it again.")["weight_map"], {}
        for file in sorted({*files.values()}):
            if Path(file).name != file or not (directory / file).is_file():
                raise UserError(f"{index} names {file}, which is not a file beside it. Download the missing file.")
            tensors |= read_safetensors(directory / file)
        return tensors, index
    if (directory / PICKLE).is_file():
        return check_finite(read_pickled(directory / PICKLE), directory / PICKLE), directory / PICKLE
    raise UserError(
        f"{directory} holds no weights: {SAFE}, {INDEX} and {PICKLE} are all missing. Download the model again."
    )


def read_safetensors(path: Path, integers: bool = True) -> Tensors:
    """Return the tensors of a safetensors file, floats as float32.

    integers: whether the file may also hold integers, such as embeddings.position_ids of old files. Raises UserError
    naming the file and the tensor that cannot be used.
    """
    types = (*_FLOATS, "I64", "I32") if integers else _FLOATS
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            for name, tensor in slices.items():
                if (kind := tensor.get_dtype()) not in types:
                    raise UserError(
                        f"{path}: the tensor {name} is of type {kind}. Save it as one of {', '.join(_FLOATS)}."
                    )
            check_available(sum(4 * math.prod(tensor.get_shape()) for tensor in slices.values()), str(path))
            arrays = {name: (file.get_tensor(name), tensor.get_dtype() in _FLOATS) for name, tensor in slices.items()}
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}. Download it again.") from error
    tensors = {name: a.astype(np.float32, copy=False) if floats else a for name, (a, floats) in arrays.items()}
    return check_finite(tensors, path)


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return tensors' shapes by name from a safetensors header; raises UserError unless they fit the file's size."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}. Download it again.") from error


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


_SPARE = 256 << 20  # bytes of memory that torch may need for any file


def read_pickled(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a pytorch_model.bin, floats as float32; executes no code in it.

    Raises UserError if torch is not installed or rejects the file, or if the file holds more than tensors.
    """
    _check_uncompressed(path)
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"{path} needs torch to be read. Install torch, or save the model as safetensors first."
        ) from error
    try:
        with limited_growth(2 * path.stat().st_size + _SPARE):  # a small pickle may ask for a large object
            state = torch.load(path, map_location="cpu", weights_only=True)
        tensors = {str(name): tensor.detach() for name, tensor in state.items()}
        return {name: (t.float() if t.is_floating_point() else t).numpy() for name, t in tensors.items()}
    except Exception as error:  # the unpickler raises many types
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(
            f"{path} is damaged or holds more than tensors by name: {reason}. Save the state dict as safetensors."
        ) from error


def _check_uncompressed(path: Path) -> None:
    """Raise UserError if a zip of torch holds compressed entries, which could fill the memory; torch writes none."""
    try:
        entries = zipfile.ZipFile(path).infolist() if zipfile.is_zipfile(path) else []
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return  # torch's error follows
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > path.stat().st_size:
            raise UserError(
                f"{path} holds the entry {entry.filename} of {entry.file_size:,} bytes in {entry.compress_size:,}, but "
                "torch.save compresses nothing. Save the model as safetensors."
            )
