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


def assert_equal_parameters(params: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float) -> None:
    assert params.keys() == expected.keys()
    for name, value in expected.items():
        # A key's bias has no effect on the softmax, so its gradient is rounding; the query's bias gives the scale.
        scale = np.abs(expected[name.replace("key/bias", "query/bias")]).max()
        np.testing.assert_allclose(params[name], value, rtol=0, atol=tolerance * scale, err_msg=name)
