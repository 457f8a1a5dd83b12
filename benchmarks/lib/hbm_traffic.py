"""Sum the bytes that a compiled TPU program moves, from its text (XLA's HLO), by part of the training step."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bertzoo.planning.compiled import ELEMENT_BYTES, computations, count_runs

REVISION = "2"  # part of the keys of stored results; raise it when the same program gets other numbers
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z0-9\-]*)\((.*)$")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([^{}]*)\})?")
_NAME = re.compile(r"%([\w.\-]+)")
_PATH = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(r"calls=%?([\w.\-]+)")
_ALIAS = re.compile(r"output_to_operand_aliasing=\{\{\}: \((\d+), \{\}\)\}")
_COPY = re.compile(r"^\s*ROOT .* copy\(")
# Instructions that move nothing, or whose bytes count where a transfer starts or in the computations that they call.
_FREE = ("parameter", "constant", "get-tuple-element", "bitcast", "tuple", "after-all", "partition-id", "while", "call",
         "conditional", "copy-done", "slice-done", "async-start", "async-update", "async-done", "all-reduce-done",
         "all-gather-done", "collective-permute-done")  # fmt: skip
_SLICES = ("slice", "dynamic-slice", "gather")  # they read only as much as they return
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}  # they write in place; the operand that holds the update

_OPTIMIZER = "optimizer"
# Parts of a step, by the path that JAX gives an operation or a parameter; the first pattern that matches counts.
_PARTS = {
    _OPTIMIZER: r"sharding_constraint",  # gathers of parameters that devices share, and sums of their gradients
    "attention": r"/attention/(dropout/|shard_map/|[a-z]{4},[a-z]{4}->|jit\(|[^/]*$)",
    "projections": r"/attention/",
    "feed-forward": r"/feed_forwards?(_\d+)?/",
    "norms, residuals, dropout": r"/layers_\d+/",
    "embedding and heads": r"embedding/|head/|pooler/|jvp\(",
}
PARTS = (*(part for part in _PARTS if part != _OPTIMIZER), _OPTIMIZER)


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes that a training step reads and writes on one device, with the padding of arrays to tiles.

    hbm: {part of the step in PARTS: bytes in the device's main memory}, forward and backward. "attention" is scores,
    probabilities and their dropout; "projections" is everything else in an attention block, such as its linear layers.
    vmem: bytes in the on-chip memory, where the compiler keeps arrays that fit.
    accessed: bytes in both memories as the compiler counts them, from operands and results without padding.
    """

    hbm: Mapping[str, int]
    vmem: int
    accessed: int

    @property
    def total(self) -> int:
        """Bytes that the step reads and writes in the device's main memory."""
        return sum(self.hbm.values())


@dataclass(frozen=True)
class _Moved:
    """An array that an operation reads or writes; on_chip: whether it is in VMEM instead of HBM."""

    size: int
    on_chip: bool


def find_arrays(shape: str) -> list[_Moved]:
    """Return the arrays of an instruction's shape in a program's text, such as `(f32[8,100]{1,0:T(8,128)S(1)}, s32[])`.

    In this layout, 1,0 are the axes from the minor to the major, T(8,128) is the size of a tile, and S(1) stands for
    VMEM. The minor axes are padded to multiples of the tile.
    """
    arrays = []
    for name, sizes, layout in _ARRAY.findall(shape):
        if name not in ELEMENT_BYTES:
            continue
        order, _, tiles = layout.partition(":")
        dimensions = [int(size) for size in sizes.split(",") if size]
        minor_first = [dimensions[int(axis)] for axis in order.split(",") if axis] or dimensions[::-1]
        tile = re.match(r"T\(([\d,]+)\)", tiles)
        for index, edge in enumerate(reversed(tile[1].split(",")) if tile else ()):
            if index < len(minor_first):
                minor_first[index] = -(-minor_first[index] // int(edge)) * int(edge)
        arrays.append(_Moved(ELEMENT_BYTES[name] * math.prod(minor_first), "S(" in tiles))
    return arrays


def measure_traffic(text: str, accessed: int) -> Traffic:
    """Return the traffic of the program with the HLO `text`. accessed: as in Traffic.

    An operation reads its operands and writes its results once; one in a loop counts once per iteration. A slice or a
    gather, also inside a fusion, reads only as many bytes as it returns. An update in place writes only the update.
    """
    bodies = computations(text)
    runs, fused = count_runs(text, bodies), set(_CALLED.findall(text))
    hbm, vmem = defaultdict(int), 0
    for name in bodies.keys() & runs.keys() - fused:
        for part, arrays in _operations(bodies[name], bodies):
            hbm[part] += runs[name] * sum(array.size for array in arrays if not array.on_chip)
            vmem += runs[name] * sum(array.size for array in arrays if array.on_chip)
    return Traffic(hbm={part: hbm[part] for part in PARTS}, vmem=vmem, accessed=accessed)


def _operations(lines: Sequence[str], bodies: Mapping[str, list[str]]) -> Iterator[tuple[str, list[_Moved]]]:
    """Yield (part of the step, arrays moved) for each operation of a computation."""
    shapes: dict[str, list[_Moved]] = {}
    paths: dict[str, str] = {}
    for match in filter(None, map(_INSTRUCTION.match, lines)):
        name, shape, kind, rest = match.groups()
        shapes[name] = results = find_arrays(shape)
        operands = _NAME.findall(rest.partition("), ")[0])
        path = _PATH.search(rest)
        # A transfer between the memories has no path; it belongs to the operation that made the array.
        paths[name] = path[1] if path else next((paths[one] for one in operands if paths.get(one)), "")
        if kind in _FREE or "ConcatBitcast" in rest:
            continue
        if kind in ("copy-start", "slice-start"):
            size = min(array.size for array in results[:2])
            yield _part(paths[name]), [_Moved(size, array.on_chip) for array in results[:2]]
        else:
            called = _CALLED.search(rest)
            uses = _uses_in_fusion(called[1], bodies) if called else {}
            sources = [shapes.get(one, []) for one in operands]
            if not called:
                uses = {index: [_use(kind, index, results, sources)] for index in range(len(sources))}
            yield _part(paths[name]), _moved(results, sources, uses)


# How an operation uses an operand: None if it reads all of it, else (whether it updates it in place, bytes moved).
_Use = tuple[bool, int] | None


def _use(kind: str, index: int, results: list[_Moved], operands: list[list[_Moved]]) -> _Use:
    if index == 0 and kind in _SLICES:
        return False, sum(array.size for array in results)
    if index == 0 and kind in _UPDATES:
        update = sum(array.size for array in operands[_UPDATES[kind]])
        return True, update * (2 if kind == "scatter" else 1)  # a scatter adds, so it reads what it writes
    return None


def _uses_in_fusion(called: str, bodies: Mapping[str, list[str]]) -> dict[int, list[_Use]]:
    """Return how the computation of a fusion, including nested fusions, uses each of its parameters, by index."""
    shapes, parameters = {}, {}
    uses: dict[int, list[_Use]] = defaultdict(list)
    for match in filter(None, map(_INSTRUCTION.match, bodies[called])):
        name, shape, kind, rest = match.groups()
        shapes[name] = find_arrays(shape)
        operands = _NAME.findall(rest.partition("), ")[0])
        inner, alias = _CALLED.search(rest), _ALIAS.search(rest)
        if kind == "parameter":
            parameters[name] = int(rest.partition(")")[0])
            continue
        if kind == "bitcast" and operands[0] in parameters:
            parameters[name] = parameters[operands[0]]
            continue
        sources = [shapes.get(one, []) for one in operands]
        nested = _uses_in_fusion(inner[1], bodies) if inner and kind == "fusion" else None
        for index, operand in enumerate(operands):
            if operand not in parameters:
                continue
            ways = [_use(kind, index, shapes[name], sources)] if nested is None else nested.get(index, [])
            if alias and index == int(alias[1]):
                parameters[name] = parameters[operand]  # the result is the operand's memory
                ways = [] if inner and any(map(_COPY.match, bodies[inner[1]])) else ways
            uses[parameters[operand]].extend(ways)
    return uses


def _moved(results: list[_Moved], operands: list[list[_Moved]], uses: Mapping[int, list[_Use]]) -> list[_Moved]:
    """Return the arrays, or parts of arrays, that an operation reads and writes."""
    moved, written = [], list(results)
    for index, arrays in enumerate(operands):
        ways = uses.get(index, [])
        partial = [way for way in ways if way is not None]
        if not ways or len(partial) < len(ways):
            moved += arrays
            continue
        size = sum(size for _, size in partial)
        moved += [_Moved(min(size, 2 * array.size), array.on_chip) for array in arrays]
        if any(in_place for in_place, _ in partial) and arrays and arrays[0] in written:
            written.remove(arrays[0])  # the result is the operand, updated in place
    return moved + written


def _part(path: str) -> str:
    if "opt_state" in path:
        return _OPTIMIZER
    path = path.replace(r"\'][\'", "/").replace("state.params[", "/")
    return next((name for name, pattern in _PARTS.items() if re.search(pattern, path)), _OPTIMIZER)
