"""Compute a function's peak memory from its jaxpr, as if XLA fused nothing."""

import math
from collections.abc import Callable, Collection, Sequence

import jax
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

from bertzoo.nn.flops import inner_jaxprs


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
