"""Tables as text: in Markdown, and as lines with aligned columns."""

from collections.abc import Iterable, Sequence


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table without a final line break; escapes `|` in cells.

    Raises ValueError if a row has more or fewer cells than the head.
    """
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    for cells in lines:
        if len(cells) != len(head):
            raise ValueError(f"{len(cells)} cells under {len(head)} headings: {cells}")
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)


def aligned(lines: Sequence[Sequence[str]], left: int | None = None) -> list[str]:
    """Join cells to lines with aligned columns: the first `left` (default: all) to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    signs = ["<" if left is None or place < left else ">" for place in range(len(widths))]
    form = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    return [form.format(*line).rstrip() for line in lines]
