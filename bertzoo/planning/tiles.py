"""What tiles add: to the memory of an array, and to the operations that a matrix unit spends on a function."""

import math
from collections.abc import Callable, Sequence
from itertools import permutations

import jax
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

from bertzoo.nn.flops import inner_jaxprs

SUBLANES, LANES = 8, 128  # rows that go through a matrix unit together, and the columns of a tile of memory


def stored(shape: Sequence[int]) -> int:
    """Elements that an array takes in memory, of four bytes each, in the order of its axes that pads least."""
    if len(shape) < 2:
        return _up(shape[0], LANES) if shape else 1
    whole = math.prod(shape)
    return min(
        _tiled(shape[a], shape[b]) * (whole // (shape[a] * shape[b])) for a, b in permutations(range(len(shape)), 2)
    )


def by_rows(shape: Sequence[int]) -> int:
    """The same with the axes in their own order, the last one the fastest."""
    return stored(shape) if len(shape) < 2 else _tiled(*shape[-2:]) * math.prod(shape[:-2])


def _tiled(rows: int, columns: int) -> int:
    return _up(rows, SUBLANES) * _up(columns, LANES)


def padded_flops(function: Callable, width: int, *arguments) -> tuple[int, int]:
    """(operations, operations once padded) of the matrix products and convolutions in `function(*arguments)`.

    2 per multiply-add. A product (m,k)·(k,n) has k and n, or k and m, padded to the unit's `width` and the third to
    SUBLANES, whichever is less. Arguments may be ShapeDtypeStructs.
    """
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    return _count(dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0], width)


def padded(m: int, k: int, n: int, width: int) -> int:
    """The multiply-adds of a product (m,k)·(k,n) on a matrix unit."""
    return _up(k, width) * min(_up(m, SUBLANES) * _up(n, width), _up(m, width) * _up(n, SUBLANES))


def _up(size: int, tile: int) -> int:
    return -(-size // tile) * tile


def _count(jaxpr: core.Jaxpr, width: int) -> tuple[int, int]:
    plain = tiled = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            product = _dot if equation.primitive.name == "dot_general" else _convolution
            times, m, k, n = product(equation)
            found = 2 * times * m * k * n, 2 * times * padded(m, k, n, width)
        else:
            repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
            inside = [_count(inner, width) for inner in inner_jaxprs(equation.params)]
            found = repeats * sum(one for one, _ in inside), repeats * sum(two for _, two in inside)
        plain, tiled = plain + found[0], tiled + found[1]
    return plain, tiled


def _dot(equation: core.JaxprEqn) -> tuple[int, int, int, int]:
    """(products side by side, m, k, n)."""
    (contracted, _), (batch, _) = equation.params["dimension_numbers"]
    left, right = (variable.aval.shape for variable in equation.invars)  # type: ignore[attr-defined]
    times, k = (math.prod(left[axis] for axis in axes) for axes in (batch, contracted))
    return times, math.prod(left) // (times * k), k, math.prod(right) // (times * k)


def _convolution(equation: core.JaxprEqn) -> tuple[int, int, int, int]:
    """The same of a convolution as the product of patches and a kernel, group by group."""
    numbers, groups = equation.params["dimension_numbers"], equation.params["feature_group_count"]
    kernel, result = equation.invars[1].aval.shape, equation.outvars[0].aval.shape  # type: ignore[attr-defined]
    outputs = kernel[numbers.rhs_spec[0]]
    return groups, math.prod(result) // outputs, math.prod(kernel) // outputs, outputs // groups
