"""Convert between array layouts written as axes, such as "D H K" in bertzoo and "(H K) D" in a checkpoint."""

import math
import re
from collections.abc import Mapping

import numpy as np

Sizes = Mapping[str, int]


def groups(axes: str) -> list[list[str]]:
    """Return the axes of every dimension: "(H K) D" -> [["H", "K"], ["D"]]; "1" is a dimension without axes."""
    return [[axis for axis in part.strip("()").split() if axis != "1"] for part in re.findall(r"\([^()]*\)|\S+", axes)]


def bind(axes: str, shape: tuple[int, ...], known: Sizes) -> dict[str, int]:
    """Return the size of each axis of an array with `axes` and `shape`.

    known: sizes of axes; one axis of each dimension may be missing. Raises ValueError if the axes do not describe an
    array of this shape, which means that the tensor rule is wrong.
    """
    parts, sizes = groups(axes), dict(known)
    for part, size in zip(parts, shape, strict=False):
        unknown = [axis for axis in part if axis not in known]
        rest = math.prod(known[axis] for axis in part if axis in known)
        if len(unknown) > 1 or size % rest:
            raise ValueError(f"axes {axes!r} do not describe an array of shape {shape}")
        sizes |= {axis: size // rest for axis in unknown}
    if len(parts) != len(shape) or math.prod(shape) != math.prod(sizes[axis] for part in parts for axis in part):
        raise ValueError(f"axes {axes!r} do not describe an array of shape {shape}")
    return sizes


def shape(axes: str, sizes: Sizes) -> tuple[int, ...]:
    """Return the shape of an array with `axes`, from the size of each axis."""
    return tuple(math.prod(sizes[axis] for axis in part) for part in groups(axes))


def rearrange(array: np.ndarray, axes: str, new_axes: str, sizes: Sizes) -> np.ndarray:
    """Return the array with its axes rearranged from `axes` to `new_axes`, contiguous in memory."""
    old, new = ([axis for part in groups(each) for axis in part] for each in (axes, new_axes))
    split = array.reshape([sizes[axis] for axis in old]).transpose([old.index(axis) for axis in new])
    return np.ascontiguousarray(split.reshape(shape(new_axes, sizes)))
