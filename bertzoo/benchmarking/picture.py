"""Draw a bar chart of measurements as a PNG file."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.benchmarking.rows import Measurement, speed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#8fb3d9", "#c4452d", "#7fa650", "#d9a441", "#8a6bb8")
SMALL = 8  # points
LETTER = 0.075  # inches, the largest width of a label's character


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
    axes.margins(x=0.3)  # room for the figures behind the longest bar
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
