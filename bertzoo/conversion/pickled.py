# pyright: reportMissingImports=false
"""Read old pytorch_model.bin files with torch's weights_only loader; no other reader imports torch."""

import zipfile
from pathlib import Path

import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.core.machine import limited_growth

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
