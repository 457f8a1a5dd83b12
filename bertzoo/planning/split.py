"""Along which dimension a mesh axis splits the values of a function, from that of its arguments.

As the compilers of sharded programs do it, and Megatron-LM by hand (Shoeybi et al. 2019, §3): a product keeps the split
of its free dimensions, and one whose contracted dimension is split is a sum over the devices, whole on each of them.
"""

import math
from collections.abc import Sequence

from jax.extend import core

Dimension = int | None  # the one that is split


def outputs(equation: core.JaxprEqn, given: Sequence[Dimension], parts: int) -> tuple[list[Dimension], bool]:
    """(the split dimension of each output, whether the devices add up their parts of it), for so many parts.

    What is in no rule below keeps the split of the first operand that has the output's rank, and its size there.
    """
    if all(dimension is None for dimension in given):
        return [None] * len(equation.outvars), False
    name = equation.primitive.name
    shapes = [variable.aval.shape for variable in equation.invars]  # type: ignore[attr-defined]
    results = [variable.aval.shape for variable in equation.outvars]  # type: ignore[attr-defined]
    first = given[0]
    if name == "dot_general":
        dimension, summed = _product(equation, given, shapes)
    elif name == "conv_general_dilated":
        dimension, summed = _convolution(equation, given)
    elif name == "gather":
        dimension, summed = _look_up(equation, given, shapes)
    elif first is None:
        return [_like(shape, shapes, given) for shape in results], False
    elif name == "transpose":
        dimension, summed = equation.params["permutation"].index(first), False
    elif name == "broadcast_in_dim":
        dimension, summed = equation.params["broadcast_dimensions"][first], False
    elif name in ("reshape", "squeeze"):
        dimension, summed = _reshaped(shapes[0], results[0], first, parts), False
    elif name.startswith("reduce_") and "axes" in equation.params:
        axes = equation.params["axes"]
        summed = first in axes
        dimension = None if summed else first - sum(axis < first for axis in axes)
    else:
        return [_like(shape, shapes, given) for shape in results], False
    return [dimension] * len(results), summed


def elementwise(equation: core.JaxprEqn) -> bool:
    """Whether every output has the shape of every operand that is no scalar, or is another order of the one operand."""
    name = equation.primitive.name
    if name in ("transpose", "reshape", "squeeze"):
        return True
    if name in ("dot_general", "conv_general_dilated", "gather", "sort", "scan"):
        return False
    shapes = {variable.aval.shape for variable in (*equation.invars, *equation.outvars)}  # type: ignore[attr-defined]
    return len(shapes - {()}) == 1


def _like(shape: Sequence[int], shapes: Sequence[Sequence[int]], given: Sequence[Dimension]) -> Dimension:
    for other, dimension in zip(shapes, given, strict=True):
        if dimension is not None and len(other) == len(shape) and other[dimension] == shape[dimension]:
            return dimension
    return None


def _reshaped(before: Sequence[int], after: Sequence[int], dimension: int, parts: int) -> Dimension:
    """The dimension of the new shape that begins where the old one did, if it is cut as evenly."""
    ahead = math.prod(before[:dimension])
    for index, size in enumerate(after):
        if math.prod(after[:index]) == ahead and size > 1:
            return index if size % parts == 0 else None
    return None


def _product(
    equation: core.JaxprEqn, given: Sequence[Dimension], shapes: Sequence[Sequence[int]]
) -> tuple[Dimension, bool]:
    contracted, batch = equation.params["dimension_numbers"]
    for side, dimension in enumerate(given):
        if dimension is not None and dimension in batch[side]:
            return batch[side].index(dimension), False
    if any(dimension in contracted[side] for side, dimension in enumerate(given)):
        return None, True
    free = [[d for d in range(len(shapes[side])) if d not in (*contracted[side], *batch[side])] for side in (0, 1)]
    for side, dimension in enumerate(given):
        if dimension is not None:
            return len(batch[0]) + side * len(free[0]) + free[side].index(dimension), False
    return None, False


def _convolution(equation: core.JaxprEqn, given: Sequence[Dimension]) -> tuple[Dimension, bool]:
    numbers = equation.params["dimension_numbers"]
    features = numbers.out_spec[1]
    if given[1] == numbers.rhs_spec[0] or (given[0] == numbers.lhs_spec[1] and _grouped(equation)):
        return features, False
    if given[0] == numbers.lhs_spec[1] or given[1] == numbers.rhs_spec[1]:
        return None, True
    return None, False


def _grouped(equation: core.JaxprEqn) -> bool:
    return equation.params["feature_group_count"] > 1


def _look_up(
    equation: core.JaxprEqn, given: Sequence[Dimension], shapes: Sequence[Sequence[int]]
) -> tuple[Dimension, bool]:
    """Rows of a table that are looked up where they are, and added up; or whole rows' columns, or split indices."""
    numbers, dimension = equation.params["dimension_numbers"], given[0]
    inside = [d for d in range(len(shapes[0])) if d not in numbers.collapsed_slice_dims]
    inside = [d for d in inside if d not in numbers.operand_batching_dims]
    if dimension is None or dimension in numbers.operand_batching_dims:
        return None, False
    if dimension in numbers.start_index_map:
        return None, True
    return numbers.offset_dims[inside.index(dimension)], False
