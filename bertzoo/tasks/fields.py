"""Convert table cells to texts, labels, numbers or lists. Errors name the `location` (file, row) and the `column`."""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from bertzoo.core.errors import UserError

_FLAGS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
_GREATEST = 3.4e38  # about the largest float32, the type of numeric labels


def text(cell: Any, location: str, column: str) -> str:
    """Return a cell as text, which may be empty; raises UserError if the cell is not text."""
    if not isinstance(cell, str):
        raise UserError(f"{location} has {_shown(cell)} in the column {column!r}, not text. Use text or drop the row.")
    try:
        cell.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{location} has half of a surrogate pair in the column {column!r}. Remove this character."
        ) from error
    return cell


def nonblank(cell: Any, location: str, column: str) -> str:
    """Return a cell as text; raises UserError if the cell is not text or is blank."""
    if not (value := text(cell, location, column)).strip():
        raise UserError(f"{location} has an empty text in the column {column!r}. Fill in text or remove the row.")
    return value


def label_name(cell: Any, location: str, column: str, names: Sequence[str] = ()) -> str:
    """Return the label in a cell as text; with `names`, an integer i in the cell stands for `names[i]`.

    Raises UserError if the cell holds no label.
    """
    integer = isinstance(cell, numbers.Integral) and not isinstance(cell, bool)
    # -1 stands for no label in Hugging Face's test splits.
    if cell is None or cell == "" or (integer and names and cell == -1):
        raise _missing(location, column)
    if integer and names:
        if 0 <= int(cell) < len(names):
            return names[int(cell)]
        raise UserError(
            f"{location} has the label {cell} in the column {column!r}. Use 0 to {len(names) - 1}: {', '.join(names)}."
        )
    if isinstance(cell, bool):
        return str(cell).lower()
    if integer:
        return str(int(cell))
    if isinstance(cell, str):
        return text(cell, location, column)
    raise UserError(f"{location} has {_shown(cell)} in the column {column!r}. Use text or an integer as label.")


def label_index(label: str, index: Mapping[str, int], location: str, column: str) -> int:
    """Return `index[label]`; raises UserError naming the labels in `index` if `label` is not among them."""
    if label not in index:
        labels = ", ".join(list(index)[:20])
        raise UserError(f"{location} has the label {label[:100]!r} in the column {column!r}. Use one of {labels}.")
    return index[label]


def number(cell: Any, location: str, column: str, limits: tuple[float, float] | None = None) -> float:
    """Return a cell as a number; raises UserError unless it fits float32 and lies within `limits` (least, greatest)."""
    if cell is None or cell == "":
        raise _missing(location, column)
    try:
        value = math.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not abs(value) <= _GREATEST:
        raise UserError(
            f"{location} has {_shown(cell)} in the column {column!r}. Use a finite number of at most {_GREATEST:g}."
        )
    if limits and not limits[0] <= value <= limits[1]:
        raise UserError(
            f"{location} has {value:g} in the column {column!r}. Use a number from {limits[0]:g} to {limits[1]:g}."
        )
    return value


def flag(cell: Any, location: str, column: str) -> bool:
    """Return whether a cell is 1 (or true), not 0 (or false); raises UserError for any other value."""
    if cell is None or cell == "":
        raise _missing(location, column)
    if (value := str(cell).strip().lower()) in _FLAGS:
        return _FLAGS[value]
    raise UserError(f"{location} has {_shown(cell)} in the column {column!r}. Use 0 or 1.")


def separated(cell: Any, separator: str, location: str, column: str) -> list[Any]:
    """Return the items of a cell: a list, or the substrings between separators. An empty text has no items.

    Raises UserError if the cell is neither a list nor text.
    """
    if isinstance(cell, list | tuple):
        return list(cell)
    return [item.strip() for item in text(cell, location, column).split(separator) if item.strip()]


def listed(cell: Any, location: str, column: str) -> list[Any]:
    """Return the items of a cell: a list, or words separated by spaces. Raises UserError for other and empty cells."""
    values = cell.split() if isinstance(cell, str) else cell
    if not isinstance(values, list | tuple) or not values:
        raise UserError(
            f"{location} has {_shown(cell)} in the column {column!r}. Use words separated by spaces or a list of words."
        )
    return list(values)


def _missing(location: str, column: str) -> UserError:
    return UserError(f"{location} has no label in the column {column!r}. Add a label or remove the row.")


def _shown(cell: Any) -> str:
    return "nothing" if cell is None else repr(cell)[:100]
