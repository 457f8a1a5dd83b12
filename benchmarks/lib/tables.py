"""Rows of a result file as a Markdown table.

A row maps headings to cells: text, a number rounded as it is to be shown, yes or no, None, a list of such cells, or a
`spread`. The numbers of a column have as many decimals as the one with most.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bertzoo.core import tables

Row = Mapping[str, Any]


def spread(values: Sequence[float], digits: int) -> dict[str, float]:
    """Median, least and greatest, rounded."""
    numbers = {"median": statistics.median(values), "least": min(values), "greatest": max(values)}
    return {name: round(value, digits) for name, value in numbers.items()}


def table(rows: Sequence[Row]) -> str:
    """The rows under the headings of the first, which all of them have."""
    if wrong := [row for row in rows if list(row) != list(rows[0])]:
        raise ValueError(f"a row has the headings {list(wrong[0])}, the first one {list(rows[0])}")
    columns = {heading: [row[heading] for row in rows] for heading in rows[0]}
    shown = [[_show(cell, _decimals(cells)) for cell in cells] for cells in columns.values()]
    return tables.markdown(list(columns), zip(*shown, strict=True))


def _decimals(cell: Any) -> int:
    if isinstance(cell, Mapping | list):
        return max((_decimals(part) for part in (cell.values() if isinstance(cell, Mapping) else cell)), default=0)
    digits = repr(cell) if isinstance(cell, float) else ""
    return 0 if "e" in digits else len(digits.partition(".")[2])


def _show(cell: Any, decimals: int) -> str:
    match cell:
        case None:
            return "-"
        case bool():
            return "yes" if cell else "no"
        case float() if 0 < abs(cell) < 1e-4:
            return f"{cell:.1e}"
        case int() | float():
            return f"{cell:,.{decimals}f}"
        case list():
            return ", ".join(_show(part, decimals) for part in cell)
        case Mapping():
            middle, low, high = (_show(part, decimals) for part in cell.values())
            return f"{middle} ({low} to {high})"
    return str(cell)
