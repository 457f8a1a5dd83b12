"""Count the operations that a TPU's matrix unit spends on a function, including the padding of products."""

import math

from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

from bertzoo.nn.flops import PRODUCTS, inner_jaxprs, product_flops

SUBLANES = 8  # rows that go through a matrix unit together


def padded_flops(jaxpr: core.Jaxpr, width: int) -> tuple[int, int]:
    """Return (operations, padded operations) of the matrix products and convolutions that a jaxpr's results need.

    A multiply-add is 2 operations. In a product (m,k)·(k,n), k is padded to a multiple of the unit's `width`. Of m and
    n, one is padded to a multiple of `width` and the other to a multiple of SUBLANES, whichever way costs less.
    """
    return _count(dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0], width)


def padded_product(m: int, k: int, n: int, width: int) -> int:
    """Return the multiply-adds of a product (m,k)·(k,n) on a matrix unit, including padding."""
    return _pad(k, width) * min(_pad(m, SUBLANES) * _pad(n, width), _pad(m, width) * _pad(n, SUBLANES))


def _pad(size: int, tile: int) -> int:
    return -(-size // tile) * tile


def _count(jaxpr: core.Jaxpr, width: int) -> tuple[int, int]:
    plain = padded = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name in PRODUCTS:
            times, m, k, n = _product_sizes(equation)
            plain += product_flops(equation)
            padded += 2 * times * padded_product(m, k, n, width)
        else:
            repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
            for inner in inner_jaxprs(equation.params):
                inner_plain, inner_padded = _count(inner, width)
                plain, padded = plain + repeats * inner_plain, padded + repeats * inner_padded
    return plain, padded


def _product_sizes(equation: core.JaxprEqn) -> tuple[int, int, int, int]:
    """Return (number of products or groups, m, k, n) of the products (m,k)·(k,n); a convolution's m are patches."""
    numbers = equation.params["dimension_numbers"]
    left, right, result = (one.aval.shape for one in (*equation.invars, *equation.outvars))  # type: ignore[attr-defined]
    if equation.primitive.name == "dot_general":
        (contracted, _), (batch, _) = numbers
        times, k = (math.prod(left[axis] for axis in axes) for axes in (batch, contracted))
        return times, math.prod(left) // (times * k), k, math.prod(right) // (times * k)
    groups, outputs = equation.params["feature_group_count"], right[numbers.rhs_spec[0]]
    return groups, math.prod(result) // outputs, math.prod(right) // outputs, outputs // groups
