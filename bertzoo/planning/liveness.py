"""The most memory that values of a function hold at once, from its jaxpr, as `flops` counts its operations."""

import math
from collections.abc import Callable

import jax
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

from bertzoo.nn.flops import inner_jaxprs


def peak_bytes(function: Callable, params: object, *inputs: object) -> int:
    """Bytes of the values live at once in `function(params, *inputs)` that depend on `inputs`, at the worst moment.

    Arguments may be ShapeDtypeStructs. Every value is counted from the operation that makes it to its last use, as if
    nothing were fused; what depends on the parameters alone is not, as a runtime computes it once.
    """
    jaxpr = jax.make_jaxpr(function)(params, *inputs).jaxpr
    fixed = len(jax.tree.leaves(params))
    kept, used = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    moving = [index >= fixed for index, uses in enumerate(used) if uses]
    return _peak(kept, moving)[0]


def _peak(jaxpr: core.Jaxpr, moving: list[bool]) -> tuple[int, list[bool]]:
    """(peak bytes beside the arguments, which outputs depend on the inputs) where `moving` says which arguments do."""
    depends = dict(zip(jaxpr.invars, moving, strict=True))

    def is_moving(variable: core.Var | core.Literal) -> bool:
        return isinstance(variable, core.Var) and depends.get(variable, False)

    last = {v: i for i, equation in enumerate(jaxpr.eqns) for v in equation.invars if isinstance(v, core.Var)}
    last |= {v: len(jaxpr.eqns) for v in jaxpr.outvars if isinstance(v, core.Var)}
    alive: dict[core.Var, int] = {}
    peak = 0
    for index, equation in enumerate(jaxpr.eqns):
        arguments = [is_moving(v) for v in equation.invars]
        inside = 0
        outputs = [any(arguments)] * len(equation.outvars)
        for inner in inner_jaxprs(equation.params):
            matched = arguments if len(inner.invars) == len(arguments) else [any(arguments)] * len(inner.invars)
            beneath, found = _peak(inner, matched)
            inside = max(inside, beneath)
            outputs = found if len(found) == len(outputs) else outputs
        depends |= dict(zip(equation.outvars, outputs, strict=True))
        made = {v: _bytes(v) for v in equation.outvars if is_moving(v)}
        peak = max(peak, sum(alive.values()) + max(inside, sum(made.values())))
        alive = {v: size for v, size in (alive | made).items() if last.get(v, -1) > index}
    return peak, [is_moving(v) for v in jaxpr.outvars]


def _bytes(variable: core.Var) -> int:
    shape, dtype = variable.aval.shape, variable.aval.dtype  # type: ignore[attr-defined]
    return dtype.itemsize * math.prod(shape)
