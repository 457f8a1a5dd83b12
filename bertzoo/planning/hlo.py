"""Find the collective operations of a compiled program in its text (XLA's HLO)."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Bytes that a device sends in the best algorithm on a ring of n devices, per byte of the operation's result.
_SENT = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: n - 1,  # relative to the result, 1/n of the input
    "all-to-all": lambda n: (n - 1) / n,
    "collective-permute": lambda n: 1.0,
}
ELEMENT_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4}
ELEMENT_BYTES |= {"f64": 8, "s64": 8, "u64": 8}

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) [^\n]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_COLLECTIVE = re.compile(rf"= (.*?) ({'|'.join(_SENT)})(-start)?\(")
# Between slices, libtpu hands an array to its runtime, which sums it with those of the devices in the same place.
_BETWEEN_SLICES = re.compile(r'= \((.*?), u32\[\], .* send\(.*_megascale_target="\{(\S+?)\}.*_transfer_type="(\w+)"')
BETWEEN_SLICES = " between slices"
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_LOOP = re.compile(r" while\(.*condition=%?([\w.\-]+), body=%?([\w.\-]+)")
_LIMIT = re.compile(r"= s32\[\]\S* constant\((\d+)\)")
_CALLS = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")


@dataclass(frozen=True, kw_only=True)
class Collective:
    """Totals for a step's collectives of one kind, such as all-reduce, that work in groups of `group` devices.

    A kind that ends in BETWEEN_SLICES uses the network between `group` slices.

    count: number of these collectives.
    size: bytes of their results.
    sent: bytes that a device sends for these collectives, with the best algorithm on a ring.
    """

    kind: str
    group: int
    count: int
    size: int
    sent: int


def find_collectives(text: str, devices: int) -> list[Collective]:
    """Return the collectives in the text of a program compiled for `devices` devices, the largest traffic first.

    A collective in a loop counts once per iteration.
    """
    bodies = computations(text)
    runs, seen = count_runs(text, bodies), set()
    totals = defaultdict(lambda: [0, 0, 0.0])
    for name, lines in bodies.items():
        for line in lines:
            between = _BETWEEN_SLICES.search(line)
            if not (match := between or _COLLECTIVE.search(line)):
                continue
            if between:
                shape, slices, kind = between[1], [int(number) for number in re.findall(r"\d+", between[2])], between[3]
                kind, group, start = kind.lower().replace("_", "-"), slices[-1] - slices[0] + 1, False
            else:
                (shape, kind, start), group = match.groups(), _group_size(line, devices)
            label = kind + BETWEEN_SLICES * bool(between)
            # An asynchronous collective is printed once for each part of the work that overlaps it, on one channel.
            channel = re.search(r"channel_id=(\d+)", line)
            if channel and (label, channel[1]) in seen:
                continue
            seen.update([(label, channel[1])] if channel else ())
            size = _result_bytes(shape, kind, bool(start))
            total = totals[label, group]
            for place, value in enumerate((1, size, size * _SENT[kind](group))):
                total[place] += value * runs.get(name, 1)
    collectives = [
        Collective(kind=kind, group=group, count=int(count), size=int(size), sent=round(sent))
        for (kind, group), (count, size, sent) in totals.items()
    ]
    return sorted(collectives, key=lambda one: (-one.sent, one.kind, one.group))


def computations(text: str) -> dict[str, list[str]]:
    """Return the lines of each computation by its name."""
    return {name: body.splitlines() for name, body in _COMPUTATION.findall(text)}


def count_runs(text: str, bodies: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return how often a program runs each computation in `bodies`, counting the iterations of all loops around it."""
    runs: dict[str, int] = {}

    def visit(name: str, times: int) -> None:
        if runs.get(name, 0) >= times:
            return
        runs[name] = times
        for line in bodies.get(name, ()):
            loop = _LOOP.search(line)
            for called in _CALLS.findall(line):
                visit(called, times * (_iterations(bodies.get(loop[1], ())) if loop and called == loop[2] else 1))

    if entry := re.search(r"^ENTRY %?([\w.\-]+)", text, re.MULTILINE):
        visit(entry[1], 1)
    return runs


def _iterations(condition: Sequence[str]) -> int:
    """Return a loop's iterations: the constant that the lines of its condition count up to, or 1 without one."""
    limits = [match[1] for line in condition if (match := _LIMIT.search(line))]
    return int(limits[0]) if len(limits) == 1 and any("direction=LT" in line for line in condition) else 1


def _result_bytes(shape: str, kind: str, start: bool) -> int:
    """Return the bytes of a collective's results from their `shape` in the program's text.

    start: whether the collective is asynchronous. The shape of an asynchronous all-reduce has only results; that of any
    other asynchronous collective has operands, results and counters, in this order.
    """
    shapes = [(ELEMENT_BYTES.get(name, 0), sizes) for name, sizes in _ARRAY.findall(shape)]
    arrays = [width * math.prod(int(n) for n in sizes.split(",") if n) for width, sizes in shapes]
    if start and kind != "all-reduce":
        arrays = [size for size in arrays if size > 4]
        return sum(arrays[len(arrays) // 2 :])
    return sum(arrays)


def _group_size(line: str, devices: int) -> int:
    if match := re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", line):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", match[1])}
        parts = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", match[2])
        return math.prod(int(part) if part else sizes[name] for name, part in parts)
    if match := re.search(r"replica_groups=\[(\d+),(\d+)\]", line):
        return int(match[2])
    if match := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return len(match[1].split(","))
    return 2 if "source_target_pairs" in line else devices
