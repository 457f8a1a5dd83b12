"""What was measured, as rows: for a program and for a person."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertzoo.benchmarking.interleave import Rounds, ratio
from bertzoo.benchmarking.profile import Shares

HEAD = (
    "model",
    "backend",
    "precision",
    "threads",
    "length",
    "median ms",
    "mean ms",
    "speed",
    "file MB",
    "peak MB",
    "GFLOPs",
    "parameters",
)
LEFT = 3  # columns of text; the others are numbers


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model in a runtime. rounds: seconds of its runs; peak: bytes beyond `empty`, the runtime without a model; size:
    bytes; what is not known of a file is None.
    """

    model: str
    backend: str
    version: str
    precision: str | None
    threads: int
    length: int
    rounds: Rounds
    peak: int
    empty: int
    size: int
    head: str | None
    parameters: int | None
    flops: int | None

    @property
    def setting(self) -> tuple[str, int, int]:
        """What two rows must have in common to be compared."""
        return self.backend, self.threads, self.length

    @property
    def milliseconds(self) -> list[float]:
        return [1e3 * second for each in self.rounds for second in each]


def speed(row: Row, rows: Sequence[Row], base: str) -> float | None:
    """How many times as fast as the model `base` in the same setting, in the first precision that it has there; None
    where it has none.
    """
    found = next((other for other in rows if (other.model, other.setting) == (base, row.setting)), None)
    return None if found is None else ratio(found.rounds, row.rounds)


def document(rows: Sequence[Row], base: str) -> list[dict[str, Any]]:
    """The rows as JSON has them; times in milliseconds, sizes in bytes."""
    return [
        {
            "model": row.model,
            "backend": row.backend,
            "version": row.version,
            "precision": row.precision,
            "threads": row.threads,
            "length": row.length,
            "head": row.head,
            "median_ms": statistics.median(row.milliseconds),
            "mean_ms": statistics.fmean(row.milliseconds),
            "least_ms": min(row.milliseconds),
            "speed": speed(row, rows, base),
            "file_bytes": row.size,
            "peak_bytes": row.peak,
            "runtime_bytes": row.empty,
            "flops": row.flops,
            "parameters": row.parameters,
            "rounds_ms": [[1e3 * second for second in each] for each in row.rounds],
        }
        for row in rows
    ]


def table(rows: Sequence[Row], base: str) -> list[str]:
    """A line for the columns' names and one for each row, aligned."""

    def cells(row: Row) -> tuple[str, ...]:
        faster = speed(row, rows, base)
        return (
            row.model,
            row.backend,
            row.precision or "",
            str(row.threads),
            str(row.length),
            f"{statistics.median(row.milliseconds):.2f}",
            f"{statistics.fmean(row.milliseconds):.2f}",
            "" if faster is None else f"{faster:.2f}",
            f"{row.size / 1e6:,.1f}",
            f"{row.peak / 1e6:,.1f}",
            "" if row.flops is None else f"{row.flops / 1e9:.2f}",
            "" if row.parameters is None else f"{row.parameters:,}",
        )

    return _aligned([HEAD, *map(cells, rows)], LEFT)


def shares_table(shares: Shares) -> list[str]:
    """The parts with their shares in percent, and those of an ablation with the quartiles of its rounds."""

    def percent(share: float) -> str:
        return f"{100 * share:.1f}".replace("-0.0", "0.0")

    cells = [("part", "FLOPs %", "latency %", "quartiles")]
    for part, share in shares.flops.items():
        low, high = map(percent, shares.quartiles.get(part, (0.0, 0.0)))
        between = f"{low} to {high}" if part in shares.quartiles else ""
        cells.append((part, percent(share), percent(shares.latency[part]), between))
    counted, taken = (percent(1 - sum(each.values())) for each in (shares.flops, shares.latency))
    return _aligned([*cells, ("the rest", counted, taken, "")], 1)


def _aligned(cells: Sequence[Sequence[str]], left: int) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
