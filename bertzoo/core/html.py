"""Show results in notebooks as HTML tables."""

from collections.abc import Mapping
from html import escape
from typing import Any

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
