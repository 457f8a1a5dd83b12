"""Markdown tables."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table without a final line break; escapes `|` in cells.

    Raises ValueError if a row has more or fewer cells than the head.
    """
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    for cells in lines:
        if len(cells) != len(head):
            raise ValueError(f"{len(cells)} cells under {len(head)} headings: {cells}")
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)
