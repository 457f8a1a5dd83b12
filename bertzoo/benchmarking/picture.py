"""What was measured as a picture: a bar for each row, and what it was measured with."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertzoo.benchmarking.rows import Row, speed

COLOURS = ("#8fb3d9", "#c4452d", "#7fa650", "#d9a441", "#8a6bb8")
DPI = 120
NAME = 32  # characters of a model's name, whose end tells more than its beginning
SMALL = 8  # points
BARS, LETTER = 5.5, 0.075  # inches that bars have at least, and that a letter of a label has at most


def draw(rows: Sequence[Row], base: str, runs: int, path: Path) -> None:
    """Write a PNG file with a bar for each row, as long as its median, and how fast it is beside it."""
    figure(rows, base, runs).savefig(path, format="png")


def figure(rows: Sequence[Row], base: str, runs: int) -> Any:
    """The picture; what all rows have been measured with is in its title, and what only some have in their labels."""
    from matplotlib.figure import Figure  # without pyplot, as in curves.py
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    settings = [_settings(row) for row in rows]
    common = [columns[0] for columns in zip(*settings, strict=True) if len(set(columns)) == 1]
    models = short([row.model for row in rows])
    labels = [
        ", ".join([models[row.model], *(each for each in own if each not in common)])
        for row, own in zip(rows, settings, strict=True)
    ]
    width = max(9.0, BARS + LETTER * max(map(len, labels)))
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    made = Figure(figsize=(width, 1.6 + 0.32 * len(rows)), dpi=DPI, layout=layout)
    title = f"{runs} runs of one row in turns; x: as fast as {models.get(base, base)}"
    made.suptitle("\n".join(filter(None, [title, ", ".join(common)])), fontsize=9, parse_math=False)
    backends = list(dict.fromkeys(row.backend for row in rows))
    axes = made.subplots()
    axes.set_yticks(range(len(rows)), labels, fontsize=SMALL, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of a run, median", fontsize=SMALL)
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    _bars(axes, rows, base, [COLOURS[backends.index(row.backend) % len(COLOURS)] for row in rows])
    return made


def _settings(row: Row) -> tuple[str, ...]:
    """In words; a file may not say its precision."""
    return (
        f"{row.backend} {row.version}",
        row.precision or "unknown precision",
        f"{row.threads} thread{'s' * (row.threads > 1)}",
        f"{row.length} tokens",
    )


def _bars(axes: Any, rows: Sequence[Row], base: str, colours: Sequence[str]) -> None:
    """With their texts behind them, for the longest of which there is room."""
    medians = [statistics.median(row.milliseconds) for row in rows]
    axes.barh(range(len(rows)), medians, color=colours)
    texts = []
    for place, (row, median) in enumerate(zip(rows, medians, strict=True)):
        faster = speed(row, rows, base)
        time = f" {median:,.0f} ms" if median >= 100 else f" {median:.3g} ms"
        beside = "" if faster is None else f", {faster:.2f}x"
        texts.append(axes.text(median, place, time + beside, va="center", fontsize=SMALL, in_layout=False))
    axes.figure.draw_without_rendering()
    room = axes.get_window_extent().width
    left = [room - text.get_window_extent().width for text in texts]
    axes.set_xlim(0, max(median * room / each for median, each in zip(medians, left, strict=True)))


def short(names: Sequence[str]) -> dict[str, str]:
    """By name its end: whole parts of a path in NAME characters, or in as many as no other name ends with."""

    def found(name: str) -> str:
        for length in range(NAME, len(name)):
            end = name[1 - length :]
            end = end[max(0, end.find("/")) :]
            if not any(other.endswith(end) for other in names if other != name):
                return f"…{end}"
        return name

    return {name: found(name) for name in names}
