"""Count a function's floating-point operations and its peak memory from its jaxpr, without a formula for each model.

The memory is what XLA would need if it fused nothing.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

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


def peak_bytes(function: Callable, params: object, *inputs: object) -> int:
    """Return the peak bytes of the values in `function(params, *inputs)` that depend on `inputs`, results included.

    Arguments may be ShapeDtypeStructs and are not counted. A value lives from the operation that computes it to its
    last use. Values that depend on the parameters alone are not counted, since a runtime computes them once.
    """
    jaxpr = jax.make_jaxpr(function)(params, *inputs).jaxpr
    param_count = len(jax.tree.leaves(params))
    used_jaxpr, used = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return _peak(used_jaxpr, [index >= param_count for index, uses in enumerate(used) if uses])[0]


def peak_beside_results(jaxpr: core.Jaxpr) -> int:
    """Return the peak bytes of a jaxpr's values, without arguments and results; of gradients, an upper bound."""
    used_jaxpr, _ = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    results = {variable for variable in used_jaxpr.outvars if isinstance(variable, core.Var)}
    return _peak(used_jaxpr, [True] * len(used_jaxpr.invars), count_constants=True, skipped=results)[0]


def _peak(
    jaxpr: core.Jaxpr,
    input_dependent: Sequence[bool],
    count_constants: bool = False,
    skipped: Collection[core.Var] = (),
) -> tuple[int, list[bool]]:
    """Return the peak bytes of a jaxpr's values without its arguments, and whether each output depends on the inputs.

    A value is counted if it depends on the inputs or, with `count_constants`, on no argument (such as a dropout mask
    from a fixed key), and is not `skipped`. input_dependent: whether each argument depends on the inputs.
    """
    depends = dict(zip(jaxpr.invars, input_dependent, strict=True))

    def is_counted(variable: core.Var | core.Literal) -> bool:
        return isinstance(variable, core.Var) and depends.get(variable, False)

    last_use = {v: i for i, equation in enumerate(jaxpr.eqns) for v in equation.invars if isinstance(v, core.Var)}
    last_use |= {v: len(jaxpr.eqns) for v in jaxpr.outvars if isinstance(v, core.Var)}
    live: dict[core.Var, int] = {}
    total = peak = 0
    for index, equation in enumerate(jaxpr.eqns):
        arguments = [is_counted(v) for v in equation.invars]
        outputs = [count_constants or any(arguments)] * len(equation.outvars)
        inner_peak = 0
        for inner in inner_jaxprs(equation.params):
            matched = arguments if len(inner.invars) == len(arguments) else [any(arguments)] * len(inner.invars)
            size, inner_outputs = _peak(inner, matched, count_constants)
            inner_peak = max(inner_peak, size)
            outputs = inner_outputs if len(inner_outputs) == len(outputs) else outputs
        depends |= dict(zip(equation.outvars, outputs, strict=True))
        new = {v: _bytes(v) for v in equation.outvars if is_counted(v) and v not in skipped}
        peak = max(peak, total + max(inner_peak, sum(new.values())))
        live |= new
        total += sum(new.values())
        for variable in (*equation.invars, *equation.outvars):
            if isinstance(variable, core.Var) and last_use.get(variable, -1) <= index:
                total -= live.pop(variable, 0)
    return peak, [is_counted(v) for v in jaxpr.outvars]


def _bytes(variable: core.Var) -> int:
    shape, dtype = variable.aval.shape, variable.aval.dtype  # type: ignore[attr-defined]
    return dtype.itemsize * math.prod(shape)
