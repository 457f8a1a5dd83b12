"""Axes of an array as words, such as "D H K" for ours and "(H K) D" for theirs; one pair of them goes both ways."""

import math
import re
from collections.abc import Mapping

import einops
import numpy as np

Sizes = Mapping[str, int]


def groups(axes: str) -> list[list[str]]:
    """The axes in every dimension: "(H K) D" -> [["H", "K"], ["D"]]; a 1 is a dimension without an axis."""
    return [[axis for axis in part.strip("()").split() if axis != "1"] for part in re.findall(r"\([^()]*\)|\S+", axes)]


def bind(axes: str, shape: tuple[int, ...]) -> dict[str, int]:
    """The size of every axis of an array of this shape, whose dimensions hold at most one axis each.

    Raises ValueError where the number of dimensions differs: then the table is wrong, not the array.
    """
    parts = groups(axes)
    if len(parts) != len(shape) or any(len(part) > 1 for part in parts):
        raise ValueError(f"axes {axes!r} do not describe an array of shape {shape}")
    return {part[0]: size for part, size in zip(parts, shape, strict=True) if part}


def shape(axes: str, sizes: Sizes) -> tuple[int, ...]:
    """The shape of an array with these axes."""
    return tuple(math.prod(sizes[axis] for axis in part) for part in groups(axes))


def rearrange(array: np.ndarray, axes: str, wanted: str, sizes: Sizes) -> np.ndarray:
    """The array, whose axes are `axes`, with the axes `wanted`, contiguous in memory."""
    return np.ascontiguousarray(einops.rearrange(array, f"{axes} -> {wanted}", **sizes))
