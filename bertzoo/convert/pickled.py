# pyright: reportMissingImports=false
"""The one place that may import torch: the weights_only loader of old pytorch_model.bin files."""

import pickle
from pathlib import Path

import numpy as np

from bertzoo.errors import UserError


def read_pickled(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a pytorch_model.bin, floats as float32; nothing in it is executed.

    Raises UserError where torch is not installed or refuses the file.
    """
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"{path} needs torch to be read: install torch, or save the model as safetensors first"
        ) from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {name: (t.float() if t.is_floating_point() else t).numpy() for name, t in state.items()}
    except (RuntimeError, pickle.UnpicklingError, EOFError, AttributeError, OSError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{path} is damaged or holds more than tensors: {reason}") from error
