"""Heat maps of what attends to what, as a PNG file, all of them on one scale of colour."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertzoo.core.errors import UserError

COLUMNS = 6
LABELLED = 40  # tokens; of longer rows the positions are numbered instead
DPI = 120
LARGEST = 32_000  # pixels a side
COLOURS = "YlGnBu"
PEAKS = 0.005  # the share of the values that lie beyond the scale
# Inches: the side of a map, of one alone, and of it for each labelled token; a character of a label, and of a title.
SIDE, ALONE, TOKEN, LETTER, TITLE = 1.7, 4.5, 0.105, 0.053, 0.08
GAP, HEAD, BLOCK, MARGIN, BAR, LINE = 0.15, 0.3, 0.2, 0.3, 0.85, 0.17


class Panel(NamedTuple):
    """A map (L,M) under a title: queries from above, keys from the left."""

    title: str
    map: np.ndarray


class Strip(NamedTuple):
    """Maps beside one another, and what stands before them."""

    label: str
    panels: Sequence[Panel]


def draw(blocks: Sequence[Sequence[Strip]], title: str, tokens: Sequence[str] | None, path: Path) -> None:
    """Write the strips, from above, as a PNG file.

    Where the strips of a block are too long for the page all are cut at the same columns, so that what stands below
    one another stays so. tokens: what stands at the positions; without, or where there are many, these are numbered.
    Raises UserError where the picture would be too large.
    """
    # Without pyplot, as in curves.py.
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    blocks = [_cut(block) for block in blocks]
    strips = [strip for block in blocks for strip in block]
    panels = [panel for strip in strips for panel in strip.panels]
    names = tokens if tokens is not None and len(tokens) <= LABELLED else None
    page = _Page.of(blocks, title, names)
    figure = Figure(figsize=(page.width, page.height), dpi=DPI)
    values = np.concatenate([panel.map.ravel() for panel in panels])
    norm = Normalize(0, np.quantile(values, 1 - PEAKS))  # rare peaks share a colour, or they alone would be seen
    for index, strip in enumerate(strips):
        middle = page.rectangle(index, 0)[1] + page.side / page.height / 2
        figure.text(
            0.1 / page.width, middle, strip.label, rotation=90, va="center", ha="left", fontsize=8, parse_math=False
        )
        for column, panel in enumerate(strip.panels):
            axes = figure.add_axes(page.rectangle(index, column))
            axes.imshow(panel.map, cmap=COLOURS, norm=norm, interpolation="nearest")
            axes.set_title(panel.title, fontsize=8, pad=3, parse_math=False)
            last = all(len(below.panels) <= column for below in strips[index + 1 :])
            _label(axes, names, left=column == 0, below=last)
    figure.text(
        page.left / page.width, 1 - 0.1 / page.height, title, va="top", ha="left", fontsize=10, parse_math=False
    )
    bar = figure.colorbar(ScalarMappable(norm, COLOURS), cax=figure.add_axes(page.bar()), extend="max")
    bar.set_label("attention of row to column", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # of a script that the font has not: a box stands for it
        figure.savefig(path, format="png")


def _cut(block: Sequence[Strip]) -> list[Strip]:
    """The strips of a block in pieces of at most COLUMNS maps, as even as can be."""
    longest = max(len(strip.panels) for strip in block)
    width = -(-longest // -(-longest // COLUMNS))
    pieces = [
        Strip(strip.label, strip.panels[start : start + width]) for start in range(0, longest, width) for strip in block
    ]
    return [piece for piece in pieces if piece.panels]


def _label(axes, names: Sequence[str] | None, left: bool, below: bool) -> None:
    axes.tick_params(labelsize=6.5, length=2 if names is None else 0, pad=2, labelleft=left, labelbottom=below)
    for shown, write, turned in ((left, axes.set_yticks, 0), (below, axes.set_xticks, 90)):
        if names is not None and shown:
            write(range(len(names)), names, rotation=turned, parse_math=False)
        elif names is not None:
            write([])


@dataclass(frozen=True, kw_only=True)
class _Page:
    """Where everything is, in inches."""

    side: float
    left: float
    width: float
    height: float
    columns: int
    tops: list[float]  # of the maps of each strip

    @classmethod
    def of(cls, blocks: Sequence[Sequence[Strip]], title: str, names: Sequence[str] | None) -> "_Page":
        strips = [strip for block in blocks for strip in block]
        columns = max(len(strip.panels) for strip in strips)
        side = max(ALONE if len(strips) == 1 and columns < 3 else SIDE, TOKEN * len(names or ()))
        words = 0.1 + LETTER * max(4, *map(len, names or [""]))
        lines = title.splitlines()
        left, top, tops = MARGIN + words, 0.1 + LINE * len(lines), []
        for block in blocks:
            tops += [top + HEAD + index * (HEAD + side) for index in range(len(block))]
            top = tops[-1] + side + BLOCK
        width = left + columns * (side + GAP) + BAR
        page = cls(
            side=side,
            left=left,
            width=max(width, left + 0.1 + TITLE * max(map(len, lines))),
            height=tops[-1] + side + words + 0.1,
            tops=tops,
            columns=columns,
        )
        pixels = round(page.width * DPI), round(page.height * DPI)
        if max(pixels) > LARGEST:
            raise UserError(
                f"the picture would have {pixels[0]:,} x {pixels[1]:,} pixels, more than {LARGEST:,} a side: "
                "give fewer layers or a shorter text"
            )
        return page

    def rectangle(self, strip: int, column: int) -> tuple[float, float, float, float]:
        """Of a map: left, bottom, width and height as shares of the page."""
        bottom = self.height - self.tops[strip] - self.side
        left = self.left + column * (self.side + GAP)
        return left / self.width, bottom / self.height, self.side / self.width, self.side / self.height

    def bar(self) -> tuple[float, float, float, float]:
        """The same of the scale of colours, which stands right of the first strip."""
        _, bottom, _, height = self.rectangle(0, 0)
        left = self.left + self.columns * (self.side + GAP)
        return left / self.width, bottom, 0.12 / self.width, height
