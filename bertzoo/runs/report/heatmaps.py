"""Draw attention maps as heat maps in one figure, all on one colour scale."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 6
LABELLED = 40  # tokens; positions of longer rows are numbered
DPI = 120
LARGEST = 32_000  # pixels a side
COLOURS = "YlGnBu"
PEAKS = 0.005  # share of the values beyond the scale: rare peaks would make everything else one colour
# Inches: side of a map, side of a single map, side per labelled token, character of a token, title with its gap.
SIDE, ALONE, TOKEN, LETTER, TITLE = 1.7, 4.5, 0.105, 0.053, 0.35


class Strip(NamedTuple):
    """A row of the figure: a label, and attention maps (queries, keys) side by side, each with a title."""

    label: str
    maps: Sequence[tuple[str, np.ndarray]]


def draw(strips: Sequence[Strip], title: str, tokens: Sequence[str] | None, path: Path) -> None:
    """Draw attention maps with `figure` and write a PNG file; raises UserError if the picture would be too large."""
    page = figure(strips, title, tokens)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the font draws a box for scripts it lacks
        page.savefig(path, format="png")


def figure(strips: Sequence[Strip], title: str, tokens: Sequence[str] | None) -> "Figure":
    """Return a figure of all strips from top to bottom.

    tokens: labels of the positions; without labels, or with more than LABELLED, the positions are numbered. Raises
    UserError if a side of the picture would be larger than LARGEST pixels.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure  # without pyplot: no backend, no global state

    columns = max(len(strip.maps) for strip in strips)
    labels = tokens if tokens is not None and len(tokens) <= LABELLED else None
    side = max(ALONE if len(strips) == 1 and columns < 3 else SIDE, TOKEN * len(labels or ()))
    margin = 0.6 + LETTER * max(map(len, labels or [""]))
    size = columns * (side + 0.15) + margin + 1, len(strips) * (side + TITLE) + margin + 0.2 * len(title.splitlines())
    if max(size) * DPI > LARGEST:
        width, height = (round(inches * DPI) for inches in size)
        raise UserError(
            f"the picture would have {width:,} x {height:,} pixels, more than {LARGEST:,} a side. Give fewer --layers "
            "or a shorter text."
        )
    page = Figure(figsize=size, dpi=DPI, layout="compressed")
    grid = page.subplots(len(strips), columns, squeeze=False)
    values = np.concatenate([array.ravel() for strip in strips for _, array in strip.maps])
    scale = Normalize(0, np.quantile(values, 1 - PEAKS))
    for row, strip in enumerate(strips):
        grid[row, 0].set_ylabel(strip.label, fontsize=8, parse_math=False)
        for axes in grid[row, len(strip.maps) :]:
            axes.axis("off")
        for column, (axes, (name, array)) in enumerate(zip(grid[row], strip.maps, strict=False)):
            axes.imshow(array, cmap=COLOURS, norm=scale, interpolation="nearest")
            axes.set_title(name, fontsize=8, pad=3, parse_math=False)
            lowest = all(len(below.maps) <= column for below in strips[row + 1 :])
            axes.tick_params(
                labelsize=6.5, length=2 if labels is None else 0, labelleft=column == 0, labelbottom=lowest
            )
            if labels is not None:
                axes.set_yticks(range(len(labels)), labels, parse_math=False)
                axes.set_xticks(range(len(labels)), labels, rotation=90, parse_math=False)
    page.suptitle(title, fontsize=10, parse_math=False)
    bar = page.colorbar(
        ScalarMappable(scale, COLOURS), ax=grid, extend="max", shrink=1 / len(strips), aspect=15, anchor=(0, 1)
    )
    bar.set_label("attention of row to column", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return page


def wrap(group: Sequence[Strip]) -> list[Strip]:
    """Break the strips of a group, at the same columns, into strips of at most COLUMNS maps, of nearly equal length."""
    longest = max(len(strip.maps) for strip in group)
    width = -(-longest // -(-longest // COLUMNS))
    starts = range(0, longest, width)
    pieces = [Strip(strip.label, strip.maps[start : start + width]) for start in starts for strip in group]
    return [piece for piece in pieces if piece.maps]
