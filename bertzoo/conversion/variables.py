# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""The one place that may import TensorFlow: its reader of checkpoints."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bertzoo.conversion.tensors import Tensors, finite
from bertzoo.core.errors import UserError

INDEX = ".index"


def read(prefix: Path, wanted: Callable[[str], bool]) -> Tensors:
    """The wanted variables of the checkpoint whose files begin with `prefix`, floats as float32.

    Raises UserError where TensorFlow is not installed, or cannot read the files.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # or it tells which instructions it was built for
    try:
        import tensorflow
    except ImportError as error:
        raise UserError(
            f"{prefix} is a TensorFlow checkpoint, which needs TensorFlow: "
            "`pip install '.[tf]'` in the checkout adds it"
        ) from error
    try:
        reader = tensorflow.train.load_checkpoint(str(prefix))
        names = sorted(filter(wanted, reader.get_variable_to_shape_map()))
        found = {name: np.asarray(reader.get_tensor(name)) for name in names}
    except (tensorflow.errors.OpError, IndexError, ValueError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"{prefix} is damaged or not a TensorFlow checkpoint: {reason}") from error
    bfloat16 = tensorflow.bfloat16.as_numpy_dtype
    floats = {
        name: array.astype(np.float32)
        for name, array in found.items()
        if array.dtype == bfloat16 or np.issubdtype(array.dtype, np.floating)
    }
    return found | finite(floats, prefix)
