"""Show results in notebooks: tables as HTML, and curves as SVG pictures."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

COLOURS = ("#8fb3d9", "#c4452d", "#5a9367", "#8b6bb1", "#d59b3d")
_MOST = 50  # rows of a table, items of a list, and points that a curve marks
_LEFT, _TOP, _WIDTH, _HEIGHT = 56, 28, 440, 160  # pixels: place and size of a chart's axes


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


def chart(title: str, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """Return curves over the steps as an SVG picture, empty without points.

    title: the quantity and its unit. curves: x and y of each curve's points, by name.
    """
    curves = {name: points for name, points in curves.items() if points[0]}
    if not curves:
        return ""
    xs, ys = ([value for points in curves.values() for value in points[axis]] for axis in (0, 1))
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    bottom, name_at, parts = _TOP + _HEIGHT, _LEFT, []

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            round(_LEFT + _WIDTH * (x - left) / (right - left or 1), 1),
            round(bottom - _HEIGHT * (y - low) / (high - low or 1), 1),
        )

    def text(x: float, y: float, words: str, more: str) -> None:
        parts.append(f'<text x="{x}" y="{y}" {more}>{escape(words)}</text>')

    for value in dict.fromkeys((low, (low + high) / 2, high)):
        x, y = place(left, value)
        parts.append(f'<path d="M{x} {y}h{_WIDTH}" stroke="currentColor" stroke-opacity="0.2"/>')
        text(x - 6, y + 4, f"{value:.4g}", 'text-anchor="end"')
    for value in dict.fromkeys((left, right)):
        text(place(value, low)[0], bottom + 16, f"{value:,}", 'text-anchor="middle"')
    text(_LEFT + _WIDTH / 2, bottom + 16, "step", 'text-anchor="middle"')
    text(_LEFT + _WIDTH, _TOP - 12, title, 'text-anchor="end"')
    for index, (name, points) in enumerate(curves.items()):
        colour, places = COLOURS[index % len(COLOURS)], [place(*point) for point in zip(*points, strict=True)]
        line = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if len(places) <= _MOST:
            parts += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in places]
        text(name_at, _TOP - 12, name, f'style="fill: {colour}; font-weight: bold"')
        name_at += 12 + 8 * len(name)
    size = f'width="{_LEFT + _WIDTH + 24}" height="{bottom + 24}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-size="12" fill="currentColor">{"".join(parts)}</svg>'
