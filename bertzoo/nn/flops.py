"""Count a function's floating-point operations from its jaxpr, without a formula for each model."""

import math
from collections import Counter
from collections.abc import Callable, Iterator

import jax
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

PRODUCTS = ("dot_general", "conv_general_dilated")


def matmul_flops(function: Callable, *arguments) -> int:
    """Return the operations of matrix products and convolutions in `function(*arguments)`, 2 per multiply-add.

    Arguments may be ShapeDtypeStructs. As usual in papers, element-wise work, norms and look-ups do not count, nor do
    operations that no output needs, since jit drops them. Element-wise multiplications count inside jitted functions
    with "convolution" in their names, because nn/dynamic_convolution.py computes convolutions by them.
    """
    return flops_by_scope(function, *arguments).total()


def flops_by_scope(function: Callable, *arguments) -> Counter[str]:
    """Return the counts of `matmul_flops` by scope, such as a Linen module "…/encoder/layers_0/attention/query/"."""
    jaxpr, total = jax.make_jaxpr(function)(*arguments).jaxpr, Counter[str]()
    for scope, times, equation in operations(dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0]):
        total[scope] += times * operation_flops(equation)
    return total


def operations(
    jaxpr: core.Jaxpr, outside: str = "", spelled_out: bool = False, times: int = 1
) -> Iterator[tuple[str, int, core.JaxprEqn]]:
    """Yield (scope, number of repetitions, equation) for each operation of a jaxpr that `matmul_flops` counts."""
    for equation in jaxpr.eqns:
        scope = f"{outside}{equation.source_info.name_stack}/"
        if equation.primitive.name in PRODUCTS or (equation.primitive.name == "mul" and spelled_out):
            yield scope, times, equation
            continue
        inside = spelled_out or "convolution" in str(equation.params.get("name", ""))
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for inner in inner_jaxprs(equation.params):
            yield from operations(inner, scope, inside, times * repeats)


def operation_flops(equation: core.JaxprEqn) -> int:
    """Return the operations of a product, a convolution or a multiplication, 2 per multiply-add."""
    outputs = math.prod(_shape(equation.outvars[0]))
    if equation.primitive.name == "mul":
        return 2 * outputs
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        sizes = _shape(equation.invars[0])
        return 2 * outputs * math.prod(sizes[axis] for axis in contracted)
    kernel = _shape(equation.invars[1])
    return 2 * outputs * math.prod(kernel) // kernel[equation.params["dimension_numbers"].rhs_spec[0]]


def _shape(variable: core.Var | core.Literal) -> tuple[int, ...]:
    return variable.aval.shape  # type: ignore[attr-defined]  # every array has one


def inner_jaxprs(parameters: dict) -> Iterator[core.Jaxpr]:
    """Yield the jaxprs in an equation's parameters, such as a loop's body; for several platforms, the default one."""
    if platforms := parameters.get("branches_platforms"):
        yield parameters["branches"][platforms.index(None)].jaxpr
        return
    for value in parameters.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item
