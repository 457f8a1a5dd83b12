"""Which values of a training step a compiler makes arrays of: a model of what XLA does for TPUs, from jaxprs alone.

Products, convolutions, look-ups, scatters, sorts and reductions make arrays. What is element by element is not kept but
made again wherever it is wanted, from the arrays it comes from, unless it joins two or more large ones (the sum of a
residual connection is kept, the activation of a product is not) or is transposed once it has been worked on. A product
that goes into one join alone is made within it. docs/plans.md says how far this is from the compiler.
"""

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.extend import core

from bertzoo.nn.flops import inner_jaxprs
from bertzoo.planning import split

# Makes arrays of its own, as whatever begins with one of the second line does; all else is made where it is used.
_MAKERS = ("dot_general", "conv_general_dilated", "gather", "sort", "cumsum", "argmax", "scan", "while", "cond")
_MAKES = ("reduce_", "scatter", "random_", "threefry")
PRODUCTS = _MAKERS[:2]
_WORK = ("exp", "exp2", "erf", "tanh", "logistic", "log", "mul", "div", "rsqrt", "integer_pow")
_MOVES = ("reshape", "transpose", "convert_element_type")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
    """One of a flat function; values are numbers, and the function's arguments have none.

    makes: it makes arrays of its own; backward: it belongs to the backward pass; elementwise: it makes a
    part of its arrays from the same part of each operand that is no scalar.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    makes: bool
    backward: bool
    elementwise: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """How devices share the work: arguments are in so many `parts` along a dimension, or whole on every device (None);
    `results`: how many devices share each; `kept`: whether those that share it have rows of their own each. What is not
    listed is whole. gathered: arguments that come in pieces from other devices as a product uses them; turned: what is
    summed over rows for a kept result goes from rows to columns first.
    """

    parts: int = 1
    arguments: tuple[split.Dimension, ...] = ()
    results: tuple[int, ...] = ()
    kept: tuple[bool, ...] = ()
    gathered: tuple[bool, ...] = ()
    turned: bool = False


class Flat:
    """A function's jaxpr as one list of operations, without those that no result needs, and the bytes of each value.

    With `cut` the bytes are those of one device of several, and `summed` has the values that devices add up.
    shares_kept: what a softmax makes is written out for the product that uses it.
    """

    @classmethod
    def of(cls, function: Callable, *arguments: Any, cut: Cut | None = None, shares_kept: bool = False) -> "Flat":
        """Of a function of these arguments, which may be ShapeDtypeStructs."""
        return cls(jax.make_jaxpr(function)(*arguments).jaxpr, cut=cut, shares_kept=shares_kept)

    def __init__(self, jaxpr: core.Jaxpr, *, cut: Cut | None = None, shares_kept: bool = False):
        self.bytes: list[int] = []
        self.summed: list[int] = []
        self._cut, self._shares = cut or Cut(), list[int]()
        self._pieces: set[core.Var] = set()
        self._places: dict[int, int] = {}
        self.operations: list[Operation] = []
        self._worked: set[int] = set()
        self._shares_kept, self._softmax = shares_kept, set[int]()
        self._converted: dict[int, list[int]] = defaultdict(list)
        known: dict[Any, int] = {}
        self._pieces.update(v for v, gathered in zip(jaxpr.invars, self._cut.gathered, strict=False) if gathered)
        self._inline(jaxpr, known, dict(zip(jaxpr.invars, self._cut.arguments, strict=False)), backward=False)
        self.results = [known[v] for v in jaxpr.outvars if isinstance(v, core.Var) and v in known]
        for variable, share in zip(jaxpr.outvars, self._cut.results, strict=False):
            if isinstance(variable, core.Var) and variable in known:
                self._shares[known[variable]] = share
        wanted, kept = set(self.results), []
        for operation in reversed(self.operations):
            if wanted.intersection(operation.outputs):
                wanted.update(operation.inputs)
                kept.append(operation)
        self.operations = kept[::-1]
        # An array that is only ever converted to fewer bytes is made with these.
        uses = Counter(value for operation in self.operations for value in operation.inputs)
        for value, outputs in self._converted.items():
            if uses[value] == len(outputs) and value not in self.results:
                self.bytes[value] = min(self.bytes[value], max(self.bytes[output] for output in outputs))
        self._share()
        self.turned: list[int] = []
        self.waiting: int | None = None
        given = [known.get(v) if isinstance(v, core.Var) else None for v in jaxpr.outvars]
        self.kept = [v for v, kept in zip(given, self._cut.kept, strict=False) if v is not None and kept]
        if self._cut.turned:
            self._turn()
        if self.kept:
            self._wait()

    def _turn(self) -> None:
        """Find what goes into sums over rows of which a device keeps some columns: it goes from rows to columns."""
        makers = {value: operation for operation in self.operations for value in operation.outputs}
        for value in self.kept:
            summed = False
            while value in makers and makers[value].name in ("reduce_sum", "convert_element_type", "reshape"):
                summed, value = summed or makers[value].name == "reduce_sum", makers[value].inputs[0]
            if summed:
                self.turned.append(value)

    def _wait(self) -> None:
        """Put the largest product of which only gradients are made, and all that is made of it, at the end.

        Compilers keep it, with what it is made from, to have something to do while parameters are on their way.
        """
        reached: dict[int, set[int]] = defaultdict(set)  # by value, the products behind it that nothing else multiplies
        multiplied: set[int] = set()
        for place, operation in enumerate(self.operations):
            behind = set().union(*(reached[value] for value in operation.inputs))
            if operation.name in PRODUCTS:
                multiplied |= behind
                behind = {place}
            for value in operation.outputs:
                reached[value] = behind
        ends = {place: value for value in self.results for place in reached[value] - multiplied}
        if ends:
            last = max(ends, key=lambda place: sum(self.bytes[value] for value in self.operations[place].inputs))
            later = [operation for operation in self.operations if last in reached[operation.outputs[0]]]
            self.operations = [operation for operation in self.operations if operation not in later] + later
            self.waiting = ends[last]

    def _share(self) -> None:
        """Divide the bytes by the devices that share a value; what goes into shares alone, part by part, is shared."""
        users: dict[int, list[Operation]] = defaultdict(list)
        for operation in reversed(self.operations):
            for value in operation.outputs:
                if self._shares[value] == 1 and users[value] and value not in self.results:
                    into = [self._shares[user.outputs[0]] if user.elementwise else 1 for user in users[value]]
                    self._shares[value] = min(into)
            for value in operation.inputs:
                users[value].append(operation)
        made = {value for operation in self.operations for value in operation.outputs}
        self.summed = [value for value in self.summed if value in made]
        self.bytes = [size // share for size, share in zip(self.bytes, self._shares, strict=True)]

    def _inline(
        self, jaxpr: core.Jaxpr, known: dict[core.Var, int], cut: dict[core.Var, split.Dimension], backward: bool
    ) -> None:
        for equation in jaxpr.eqns:
            along = [cut.get(v) if isinstance(v, core.Var) else None for v in equation.invars]
            given = [known.get(v) if isinstance(v, core.Var) else None for v in equation.invars]
            behind = backward or "transpose(" in str(equation.source_info.name_stack)
            if (inner := _called(equation)) is not None:
                first = len(given) - len(inner.invars)  # after which of a platform's ways is taken
                given, along = given[first:], along[first:]
                inside = {v: number for v, number in zip(inner.invars, given, strict=True) if number is not None}
                within = dict(zip(inner.invars, along, strict=True))
                for variable, outside in zip(inner.invars, equation.invars[first:], strict=True):
                    piece = isinstance(outside, core.Var) and outside in self._pieces
                    (self._pieces.add if piece else self._pieces.discard)(variable)
                self._inline(inner, inside, within, behind)
                pairs = zip(equation.outvars, inner.outvars, strict=True)
                pairs = [(v, made) for v, made in pairs if isinstance(made, core.Var)]
                known.update({v: inside[made] for v, made in pairs if made in inside})
                cut.update({v: within[made] for v, made in pairs if made in within})
                self._pieces.update(v for v, made in pairs if made in self._pieces)
                continue
            outputs = tuple(range(len(self.bytes), len(self.bytes) + len(equation.outvars)))
            self.bytes.extend(map(_bytes, equation.outvars))
            dimensions, summed = split.outputs(equation, along, self._cut.parts)
            cut.update(zip(equation.outvars, dimensions, strict=True))
            self._shares.extend(1 if dimension is None else self._cut.parts for dimension in dimensions)
            if summed:
                self.summed.extend(outputs)
            known.update(zip(equation.outvars, outputs, strict=True))
            used = tuple(number for number in given if number is not None)
            name = equation.primitive.name
            if name == "convert_element_type" and used:
                self._converted[used[0]].extend(outputs)
            makes = self._makes(equation, used, outputs)
            self._meet(equation, known)
            if self._shares_kept and not behind:
                self._keep_shares(equation, used, outputs)
            one = {"name": name, "inputs": used, "outputs": outputs, "makes": makes, "backward": behind}
            self._places.update(dict.fromkeys(outputs, len(self.operations)))
            self.operations.append(Operation(**one, elementwise=split.elementwise(equation)))

    def _meet(self, equation: core.JaxprEqn, known: dict[core.Var, int]) -> None:
        """A product with what comes in pieces is done in as many, each of which reads the other factor: an array."""
        arrays = [v for v in equation.invars if v.aval.shape]  # type: ignore[attr-defined]
        pieces = [v for v in arrays if isinstance(v, core.Var) and v in self._pieces]
        if split.elementwise(equation) and pieces and len(pieces) == len(arrays):
            self._pieces.update(equation.outvars)
        elif equation.primitive.name in PRODUCTS and len(pieces) == 1:
            (other,) = (v for v in equation.invars if isinstance(v, core.Var) and v not in pieces)
            place = self._places.get(known.get(other, -1))
            while place is not None and self.operations[place].name in _MOVES:
                place = self._places.get(self.operations[place].inputs[0]) if self.operations[place].inputs else None
            if place is not None and self.operations[place].name in _WORK:
                self.operations[place] = dataclasses.replace(self.operations[place], makes=True)

    def _keep_shares(self, equation: core.JaxprEqn, used: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        """Follow a softmax, dropped out and converted, into the product that uses it, whose factor is an array."""
        name = equation.primitive.name
        if name == "div" and len(used) == 2 and self._behind(used[1], "reduce_sum"):
            self._softmax.update(outputs)
        elif name in PRODUCTS:
            for place in (self._places[value] for value in self._softmax.intersection(used)):
                self.operations[place] = dataclasses.replace(self.operations[place], makes=True)
        elif (split.elementwise(equation) or name in _MOVES) and self._softmax.intersection(used):
            self._softmax.update(outputs)

    def _behind(self, value: int, name: str) -> bool:
        """Whether a value is what an operation of that name made, but for its shape and type."""
        while (place := self._places.get(value)) is not None and self.operations[place].name in (
            *_MOVES,
            "broadcast_in_dim",
        ):
            value = self.operations[place].inputs[0]
        return place is not None and self.operations[place].name == name

    def _makes(self, equation: core.JaxprEqn, used: Iterable[int], outputs: Iterable[int]) -> bool:
        name = equation.primitive.name
        if (name in _MAKERS or name.startswith(_MAKES)) and not _picks(equation):
            return True
        worked = bool(self._worked.intersection(used))
        if worked and name == "transpose":
            return True
        if worked or name in _WORK:
            self._worked.update(outputs)
        return False


def _picks(equation: core.JaxprEqn) -> bool:
    """Whether a scatter puts one element into every row, which compilers write as a comparison with the index."""
    batch = getattr(equation.params.get("dimension_numbers"), "operand_batching_dims", ())
    dimensions = len(equation.outvars[0].aval.shape)  # type: ignore[attr-defined]
    return equation.primitive.name.startswith("scatter") and len(batch) == dimensions - 1


def _called(equation: core.JaxprEqn) -> core.Jaxpr | None:
    """What an operation calls once with its own arguments, on a TPU."""
    if equation.params.get("branches_platforms"):
        return next(inner_jaxprs(equation.params))
    if equation.primitive.name in _MAKERS:
        return None
    for value in equation.params.values():
        jaxpr = value.jaxpr if isinstance(value, core.ClosedJaxpr) else value
        if isinstance(jaxpr, core.Jaxpr) and len(jaxpr.invars) == len(equation.invars):
            return jaxpr if len(jaxpr.outvars) == len(equation.outvars) else None
    return None


def _bytes(variable: core.Var) -> int:
    shape, dtype = variable.aval.shape, variable.aval.dtype  # type: ignore[attr-defined]
    return getattr(dtype, "itemsize", 4) * math.prod(shape)
