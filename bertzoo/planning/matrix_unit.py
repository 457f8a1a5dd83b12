"""Count the operations that a TPU's matrix unit spends on a function, including the padding of products."""

import math

from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

from bertzoo.nn.flops import inner_jaxprs

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
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            sizes = _product_sizes if equation.primitive.name == "dot_general" else _convolution_sizes
            times, m, k, n = sizes(equation)
            plain += 2 * times * m * k * n
            padded += 2 * times * padded_product(m, k, n, width)
        else:
            repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
            for inner in inner_jaxprs(equation.params):
                inner_plain, inner_padded = _count(inner, width)
                plain, padded = plain + repeats * inner_plain, padded + repeats * inner_padded
    return plain, padded


def _product_sizes(equation: core.JaxprEqn) -> tuple[int, int, int, int]:
    """Return (number of products, m, k, n) of the products (m,k)·(k,n) in a dot_general."""
    (contracted, _), (batch, _) = equation.params["dimension_numbers"]
    left, right = (variable.aval.shape for variable in equation.invars)  # type: ignore[attr-defined]
    times, k = (math.prod(left[axis] for axis in axes) for axes in (batch, contracted))
    return times, math.prod(left) // (times * k), k, math.prod(right) // (times * k)


def _convolution_sizes(equation: core.JaxprEqn) -> tuple[int, int, int, int]:
    """Return (groups, m, k, n) of a convolution: in each group, a product (m,k)·(k,n) of patches and the kernel."""
    numbers, groups = equation.params["dimension_numbers"], equation.params["feature_group_count"]
    kernel, result = equation.invars[1].aval.shape, equation.outvars[0].aval.shape  # type: ignore[attr-defined]
    outputs = kernel[numbers.rhs_spec[0]]
    return groups, math.prod(result) // outputs, math.prod(kernel) // outputs, outputs // groups
