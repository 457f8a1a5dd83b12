"""Hold the measurements of timed models, and write them as JSON, as a text table or as a bar chart."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.benchmarking.interleave import Rounds, ratio
from bertzoo.core.tables import aligned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXT_COLUMNS = 3  # left-aligned; the others are numbers
COLOURS = ("#8fb3d9", "#c4452d", "#7fa650", "#d9a441", "#8a6bb8")
SMALL = 8  # points
LETTER = 0.075  # inches, the largest width of a label's character


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A model timed in a runtime.

    length: row length in tokens.
    rounds: seconds of each run, by round.
    empty: peak memory of the runtime without a model, in bytes.
    peak: peak memory with the model minus `empty`, in bytes.
    size: bytes of the file.
    head, parameters, flops, precision: None if the file does not record them.
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
        """Runtime, threads and length; only measurements of the same setting are compared."""
        return self.backend, self.threads, self.length

    @property
    def milliseconds(self) -> list[float]:
        """Milliseconds of every timed run, over all rounds."""
        return [1e3 * second for runs in self.rounds for second in runs]


def speed(row: Measurement, rows: Sequence[Measurement], base: str) -> float | None:
    """Return the speed of a row relative to model `base` in the same setting; 2.0 is twice as fast.

    Returns None if `base` was not timed in this setting.
    """
    reference = next((one for one in rows if (one.model, one.setting) == (base, row.setting)), None)
    return None if reference is None else ratio(reference.rounds, row.rounds)


def document(rows: Sequence[Measurement], base: str) -> list[dict[str, Any]]:
    """Return the rows as JSON objects; times are in milliseconds, sizes in bytes."""
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
            "rounds_ms": [[1e3 * second for second in runs] for runs in row.rounds],
        }
        for row in rows
    ]


def table(rows: Sequence[Measurement], base: str) -> list[str]:
    """Return aligned lines of text: the column names, then one line for each row."""

    def optional(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    lines = [
        {
            "model": row.model,
            "backend": row.backend,
            "precision": row.precision or "",
            "threads": str(row.threads),
            "length": str(row.length),
            "median ms": f"{statistics.median(row.milliseconds):.2f}",
            "mean ms": f"{statistics.fmean(row.milliseconds):.2f}",
            "speed": optional(speed(row, rows, base), ".2f"),
            "file MB": f"{row.size / 1e6:,.1f}",
            "peak MB": f"{row.peak / 1e6:,.1f}",
            "GFLOPs": optional(None if row.flops is None else row.flops / 1e9, ".2f"),
            "parameters": optional(row.parameters, ","),
        }
        for row in rows
    ]
    return aligned([list(lines[0]), *(list(line.values()) for line in lines)], TEXT_COLUMNS)


def draw(rows: Sequence[Measurement], base: str, runs: int, path: Path) -> None:
    """Write the chart of `figure` as a PNG file."""
    figure(rows, base, runs).savefig(path, format="png")


def figure(rows: Sequence[Measurement], base: str, runs: int) -> "Figure":
    """Return a bar chart of each row's median in milliseconds; the bars are labelled with speeds relative to `base`.

    The title holds the settings that all rows share; each row's label holds its other settings.
    """
    from matplotlib.figure import Figure  # without pyplot: no backend, no global state

    settings = [_settings(row) for row in rows]
    shared = [columns[0] for columns in zip(*settings, strict=True) if len(set(columns)) == 1]
    models = [row.model for row in rows]
    short = [Path(model).name for model in models]
    names = short if len(set(short)) == len(set(models)) else models
    labels = [
        ", ".join([name, *(value for value in values if value not in shared)])
        for name, values in zip(names, settings, strict=True)
    ]
    size = max(9.0, 5.5 + LETTER * max(map(len, labels))), 1.6 + 0.32 * len(rows)
    page = Figure(figsize=size, dpi=120, layout="constrained")
    title = f"{runs} runs of one row in turns; 2x: twice as fast as {base}"
    page.suptitle("\n".join(filter(None, [title, ", ".join(shared)])), fontsize=9, parse_math=False)
    axes = page.subplots()
    medians = [statistics.median(row.milliseconds) for row in rows]
    backends = list(dict.fromkeys(row.backend for row in rows))
    colours = [COLOURS[backends.index(row.backend) % len(COLOURS)] for row in rows]
    bars = axes.barh(range(len(rows)), medians, color=colours)
    axes.bar_label(bars, [_figures(row, rows, base) for row in rows], padding=3, fontsize=SMALL)
    axes.margins(x=0.3)  # room for the numbers behind the longest bar
    axes.set_yticks(range(len(rows)), labels, fontsize=SMALL, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of a run, median", fontsize=SMALL)
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    return page


def _settings(row: Measurement) -> tuple[str, ...]:
    return (
        f"{row.backend} {row.version}",
        row.precision or "unknown precision",
        f"{row.threads} thread{'s' * (row.threads > 1)}",
        f"{row.length} tokens",
    )


def _figures(row: Measurement, rows: Sequence[Measurement], base: str) -> str:
    median, times = statistics.median(row.milliseconds), speed(row, rows, base)
    milliseconds = f"{median:,.0f} ms" if median >= 100 else f"{median:.3g} ms"
    return milliseconds if times is None else f"{milliseconds}, {times:.2f}x"
