"""What a compiled program's text (XLA's HLO) says of what its chips send one another."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

# What a chip sends in the best algorithm on a ring of n, for each byte of the operation's result.
_SENT = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: n - 1,  # the result is one n-th of what goes in
    "all-to-all": lambda n: (n - 1) / n,
    "collective-permute": lambda n: 1.0,
}
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4}
_BYTES |= {"f64": 8, "s64": 8, "u64": 8}

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_COLLECTIVE = re.compile(rf"= (.*?) ({'|'.join(_SENT)})(-start)?\(")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_CONDITION, _BODY = (re.compile(rf" while\(.*{part}=%?([\w.\-]+)") for part in ("condition", "body"))
_LIMIT = re.compile(r"= s32\[\]\S* constant\((\d+)\)")
_CALLS = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")


@dataclass(frozen=True, kw_only=True)
class Collective:
    """All of a kind over groups of one size: how many a step, bytes of their results, bytes that a device sends."""

    kind: str
    group: int
    count: int
    size: int
    sent: int  # in the best algorithm on a ring, for which a reduction sends nearly twice its size


def collectives(text: str, devices: int) -> list[Collective]:
    """The collectives of one run of a program on so many devices, the largest first; those in a loop every time."""
    bodies = dict(_bodies(text))
    runs, found, seen = _runs(text, bodies), defaultdict(lambda: [0, 0, 0.0]), set()
    for name, lines in bodies.items():
        for line in lines:
            if not (match := _COLLECTIVE.search(line)):
                continue
            # What runs beside other work is written once for each part of that work, always of the same channel.
            channel = re.search(r"channel_id=(\d+)", line)
            if channel and channel[1] in seen:
                continue
            seen.update(channel.groups() if channel else ())
            shape, kind, start = match.groups()
            group = _group(line, devices)
            size = _size(shape, kind, bool(start))
            total = found[kind, group]
            for place, value in enumerate((1, size, size * _SENT[kind](group))):
                total[place] += value * runs.get(name, 1)
    made = [
        Collective(kind=kind, group=group, count=int(count), size=int(size), sent=round(sent))
        for (kind, group), (count, size, sent) in found.items()
    ]
    return sorted(made, key=lambda collective: (-collective.sent, collective.kind, collective.group))


def _bodies(text: str) -> Iterator[tuple[str, list[str]]]:
    """Name and lines of every computation."""
    name, lines = "", []
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            name, lines = match[1], []
        elif line.startswith("}"):
            yield name, lines
        else:
            lines.append(line)


def _runs(text: str, bodies: Mapping[str, list[str]]) -> dict[str, int]:
    """How often the program runs each computation: once for the innermost loops around it and all that they repeat."""
    entry = re.search(r"^ENTRY %?([\w.\-]+)", text, re.MULTILINE)
    runs: dict[str, int] = {}

    def visit(name: str, times: int) -> None:
        if runs.get(name, 0) >= times:
            return
        runs[name] = times
        for line in bodies.get(name, ()):
            condition, body = _CONDITION.search(line), _BODY.search(line)
            trips = _trips(bodies.get(condition[1], ())) if condition else 1
            for called in _CALLS.findall(line):
                visit(called, times * (trips if body and called == body[1] else 1))

    if entry:
        visit(entry[1], 1)
    return runs


def _trips(condition: Iterable[str]) -> int:
    """The runs of a loop that counts up to a constant; 1 where its condition is another."""
    lines = list(condition)
    limits = [match[1] for line in lines if (match := _LIMIT.search(line))]
    return int(limits[0]) if len(limits) == 1 and any("direction=LT" in line for line in lines) else 1


def _size(shape: str, kind: str, start: bool) -> int:
    """Bytes of a result; the start of an asynchronous one, but for all-reduce, gives (operands, results, counters)."""
    found = [(_BYTES.get(name, 0), sizes) for name, sizes in _ARRAY.findall(shape)]
    arrays = [width * math.prod(int(n) for n in sizes.split(",") if n) for width, sizes in found]
    if start and kind != "all-reduce":
        arrays = [size for size in arrays if size > 4]
        return sum(arrays[len(arrays) // 2 :])
    return sum(arrays)


def _group(line: str, devices: int) -> int:
    """Devices in one group of a collective, in any of the ways the text writes them."""
    if match := re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", line):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", match[1])}
        parts = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", match[2])
        return math.prod(int(part) if part else sizes[name] for name, part in parts)
    if match := re.search(r"replica_groups=\[(\d+),(\d+)\]", line):
        return int(match[2])
    if match := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return len(match[1].split(","))
    return 2 if "source_target_pairs" in line else devices
