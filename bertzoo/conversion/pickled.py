# pyright: reportMissingImports=false
"""Read old pytorch_model.bin files with torch's weights_only loader; no other reader imports torch."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.core.memory import limited_growth

_SPARE = 256 << 20  # bytes of memory that torch may need for any file
_SPARE_NUMBERS = 16 << 20  # 64 MiB as float32


def read_pickled(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a pytorch_model.bin, floats as float32; executes no code in it.

    Raises UserError if torch is not installed or rejects the file, or if the file holds more than a model's tensors.
    """
    _check_uncompressed(path)
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"{path} needs torch to be read. Install torch, or save the model as safetensors first."
        ) from error
    size = path.stat().st_size
    try:
        with limited_growth(2 * size + _SPARE):  # a small pickle may ask for a large object
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler raises many types
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(
            f"{path} is damaged or holds more than tensors: {reason}. Save the model as safetensors."
        ) from error
    if not isinstance(state, dict):
        raise UserError(f"{path} holds a {type(state).__name__}, not tensors by name. Save the state dict.")
    tensors = {name: _checked(name, tensor, path, torch) for name, tensor in state.items()}
    tied = {name: (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) for name, tensor in tensors.items()}
    distinct = {tied[name]: tensor for name, tensor in tensors.items()}
    numbers = sum(tensor.numel() for tensor in tensors.values())  # a model may copy a tensor for each of its names
    if numbers > size + _SPARE_NUMBERS:  # with two names for every float16, numbers equal bytes
        raise UserError(
            f"{path} has {size:,} bytes, but its tensors have {numbers:,} numbers in total, counted once per name. At "
            f"most {size + _SPARE_NUMBERS:,} are read. Save the model as safetensors."
        )
    arrays = {key: (t.float() if t.is_floating_point() else t).numpy() for key, t in distinct.items()}
    return {name: arrays[key] for name, key in tied.items()}


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


def _checked(name: Any, tensor: Any, path: Path, torch: Any) -> Any:
    if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
        raise UserError(
            f"{path} holds more than tensors by name: {name!r} is a {type(tensor).__name__}. Save the state dict alone."
        )
    floats, integers = (torch.float32, torch.float16, torch.bfloat16), (torch.int64, torch.int32)
    if tensor.dtype not in floats + integers:
        names = ", ".join(str(kind).removeprefix("torch.") for kind in floats)
        kind = str(tensor.dtype).removeprefix("torch.")
        raise UserError(f"{path}: the tensor {name} is of type {kind}. Save it as one of {names}.")
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        layout = str(tensor.layout).removeprefix("torch.")
        raise UserError(
            f"{path}: the tensor {name} has layout {layout} on {tensor.device}. Save it as a dense tensor on the CPU."
        )
    if tensor.nbytes > (stored := tensor.untyped_storage().nbytes()):
        raise UserError(
            f"{path}: the tensor {name} of shape {tuple(tensor.shape)} has {tensor.nbytes:,} bytes, but the file "
            f"stores {stored:,} for it. Save the model as safetensors."
        )
    return tensor.detach()  # a file may hold parameters
