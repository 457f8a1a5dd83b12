"""Compare arrays, and trees of arrays, with a reference."""

from functools import partial
from typing import Any

import flax.traverse_util
import numpy as np

flatten = partial(flax.traverse_util.flatten_dict, sep="/")  # a tree's leaves by path


def assert_close(ours: Any, theirs: Any, what: str, scale: float | None = None, tolerance: float = 1e-5) -> None:
    """Equal to `tolerance` of the reference's largest value, or of `scale`."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape, f"{what}: ours {ours.shape}, theirs {theirs.shape}"
    scale = float(np.abs(theirs).max()) if scale is None else scale
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale, err_msg=what)
