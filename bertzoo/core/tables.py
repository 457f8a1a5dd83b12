"""Tables as text: in Markdown, and as lines with aligned columns."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


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
    signs = ["<" if left is None or index < left else ">" for index in range(len(widths))]
    form = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    return [form.format(*line).rstrip() for line in lines]


_MOST = 50  # rows of a table, and items of a list


class Record(dict[str, Any]):
    """A dictionary that notebooks show as a table."""

    def _repr_html_(self) -> str:
        return table(self)


class Records(list[dict[str, Any]]):
    """A list of dictionaries that notebooks show as one table."""

    def _repr_html_(self) -> str:
        return table(self)


def table(value: Any) -> str:
    """Return JSON data as HTML: an object as a table of two columns, a list of objects as one with a column per key."""
    if isinstance(value, Mapping):
        rows = [f"<th>{escape(str(key))}</th><td>{table(item)}</td>" for key, item in value.items()]
    elif isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
        keys = list(dict.fromkeys(key for item in value for key in item))
        rows = ["".join(f"<th>{escape(str(key))}</th>" for key in keys)]
        rows += ["".join(f"<td>{table(item.get(key, ''))}</td>" for key in keys) for item in value[:_MOST]]
        rows += [f"<td>{len(value) - _MOST:,} more</td>"] * (len(value) > _MOST)
    elif isinstance(value, list | tuple):
        return ", ".join([*map(table, value[:_MOST]), *["…"] * (len(value) > _MOST)])
    else:
        return f"{value:,.4g}" if isinstance(value, float) else escape(str(value))
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
