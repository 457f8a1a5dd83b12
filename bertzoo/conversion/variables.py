# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""Read TensorFlow checkpoints; the only module that may import TensorFlow."""

import glob
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bertzoo.conversion.tensors import Tensors, check_finite
from bertzoo.core.errors import UserError, needs_extra

INDEX = ".index"


def read_variables(prefix: Path, select: Callable[[str], bool]) -> Tensors:
    """Return the variables that `select` accepts by name, from the checkpoint files that begin with `prefix`.

    Floats are float32. Raises UserError if TensorFlow is not installed or cannot read the files.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # otherwise it logs the CPU's instruction sets
    with needs_extra(str(prefix), "tf"):
        import tensorflow
    try:
        reader = tensorflow.train.load_checkpoint(str(prefix))
        shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        names = sorted(filter(select, shapes))
        declared = sum(math.prod(shapes[name]) * types[name].size for name in names)
        stored = sum(file.stat().st_size for file in prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*"))
        if declared > (stored or prefix.stat().st_size):  # an older checkpoint is one file
            raise ValueError(f"its variables have {declared:,} bytes, but its data files {stored:,}")
        arrays = {name: np.asarray(reader.get_tensor(name)) for name in names}
    except (tensorflow.errors.OpError, IndexError, ValueError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"{prefix} is damaged or not a TensorFlow checkpoint: {reason}. Download it again.") from error
    types = (tensorflow.bfloat16.as_numpy_dtype, np.floating)
    floats = {name: array.astype(np.float32) for name, array in arrays.items() if issubclass(array.dtype.type, types)}
    return arrays | check_finite(floats, prefix)
