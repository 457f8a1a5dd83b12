"""Markdown tables."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table without a final line break; `|` in a cell is escaped.

    Raises ValueError if a row has not as many cells as the head.
    """
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    for cells in lines:
        if len(cells) != len(head):
            raise ValueError(f"{len(cells)} cells under {len(head)} headings: {cells}")
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)
