"""How many bytes are alive at the worst moment of a function, of whose operations `fusion` says which make arrays."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable

from bertzoo.planning.fusion import PRODUCTS, Flat

_TURNED = 4  # what is turned for the scales and biases of a layer's two norms is there at once
_SMALL = 192 << 10
_LONG = 4  # what works on larger arrays is a loop of no more operations
_LARGE = 4  # an array is large beside another of less than so many times its size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alive:
    """Bytes at the worst moment of a function: `activations`, made in the forward pass for the backward pass,
    `gradients`, which are returned, and `temporaries`, all else.

    returned: bytes of all that is returned but for kept: of gradients whose other parts are other devices'; summed: of
    what devices add up within the function; turned: of what goes from a device's rows to its columns; moved: of all
    arrays, however long they live; effort: the sum over the arrays of log2(1 + bytes / 192 KiB), at most 4, which the
    length of the program goes with.
    """

    activations: int
    gradients: int
    temporaries: int
    returned: int
    kept: int
    summed: int
    turned: int
    moved: int
    effort: float

    @property
    def total(self) -> int:
        return self.activations + self.gradients + self.temporaries


class Growth:
    """What a function of a batch keeps alive, for any number of rows, from its jaxprs at two small ones."""

    def __init__(self, trace: Callable[[int], Flat], rows: tuple[int, int] = (2, 3)):
        self._rows, self._flat, other = rows, trace(rows[0]), trace(rows[1])
        if [o.name for o in self._flat.operations] != [o.name for o in other.operations]:
            raise ValueError(f"the function is another one for {rows[0]} rows than for {rows[1]}")
        self._pairs = list(zip(self._flat.bytes, other.bytes, strict=True))

    def at(self, rows: int) -> Alive:
        """The account for so many rows."""
        low, high = self._rows
        return alive(self._flat, [a + (b - a) * (rows - low) // (high - low) for a, b in self._pairs])


def alive(flat: Flat, size: list[int]) -> Alive:
    """The account of a function whose values have these sizes in bytes."""
    sources = _sources(flat, size)
    made = {v: place for place, o in enumerate(flat.operations) for v in o.outputs if sources[v] == {v}}
    last = dict(made)
    for place, operation in enumerate(flat.operations):
        if any(value in made for value in operation.outputs):
            for value in operation.inputs:
                last.update(dict.fromkeys(sources[value], place))
    returned = {source for value in flat.results for source in sources[value]}
    shared = {source for value in flat.kept for source in sources[value]}
    last.update(dict.fromkeys(returned, len(flat.operations)))
    ending = defaultdict(list)
    for value, place in last.items():
        ending[place].append(value)
    now, most, worst = set(), -1, set()
    total = 0
    for place, operation in enumerate(flat.operations):
        new = [value for value in operation.outputs if value in made]
        now.update(new)
        total += sum(size[value] for value in new)
        if total > most:
            most, worst = total, set(now)
        for value in ending[place]:
            now.discard(value)
            total -= size[value]
    forward = {value for value, place in made.items() if not flat.operations[place].backward}
    backward = {
        value for value, place in last.items() if place == len(flat.operations) or flat.operations[place].backward
    }
    kept = (forward & backward & worst) - returned
    activations, gradients = sum(size[v] for v in kept), sum(size[v] for v in worst & returned)
    temporaries = max(0, most) - activations - gradients
    if flat.waiting is not None and flat.waiting not in worst:
        gradients += size[flat.waiting]
    turned = sorted((size[value] for value in flat.turned), reverse=True)
    return Alive(
        activations=activations,
        gradients=gradients,
        temporaries=temporaries + sum(turned[:_TURNED]),
        returned=sum(size[value] for value in returned - shared),
        kept=sum(size[value] for value in shared),
        summed=sum(size[value] for value in flat.summed),
        turned=sum(turned),
        moved=sum(size[value] for value in made),
        effort=sum(min(_LONG, math.log2(1 + size[value] / _SMALL)) for value in made),
    )


def _sources(flat: Flat, size: list[int]) -> list[set[int]]:
    """The arrays that each value is made from; those of an array are itself."""
    within = _used_within(flat)
    found: list[set[int]] = [set() for _ in size]
    joins: set[int] = set()
    users: dict[int, set[int]] = defaultdict(set)
    for operation in flat.operations:
        behind = set().union(*(found[value] for value in operation.inputs))
        for value in operation.outputs:
            large = sum(size[source] * _LARGE > size[value] for source in behind)
            if large > 1 and value in within and not operation.makes:
                joins.add(value)
            found[value] = {value} if operation.makes or value in joins else behind
            if found[value] == {value}:
                for source in behind:
                    users[source].add(value)
    for value in flat.results:
        for source in found[value]:
            users[source].add(-1)
    # The products whose one use is a join are made within it: what they are made from lasts until then.
    for operation in flat.operations:
        for value in operation.outputs:
            absorbed = operation.name in PRODUCTS and len(users[value]) == 1 and users[value] <= joins
            if absorbed or found[value] != {value}:
                found[value] = set().union(*(found[used] for used in operation.inputs))
    return found


def _used_within(flat: Flat) -> set[int]:
    """The values that an array is made from, and that are not merely returned."""
    within: set[int] = set()
    for operation in reversed(flat.operations):
        if operation.makes or within.intersection(operation.outputs):
            within.update(operation.inputs)
    return within
