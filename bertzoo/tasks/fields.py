"""What stands in a cell, checked: text, a class, a number, words. Every refusal names the place and the column."""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from bertzoo.core.errors import UserError

_GREATEST = 3.4e38  # of what float32 holds, in which numbers are learnt


def text(cell: Any, place: str, column: str) -> str:
    """The text of a cell, which may be empty; raises UserError for anything else."""
    if isinstance(cell, bytes):
        try:
            cell = cell.decode()
        except UnicodeDecodeError as error:
            raise UserError(f"{place} is not UTF-8 text in the column {column!r}: {error.reason}") from error
    if not isinstance(cell, str):
        raise UserError(
            f"{place} has no text in the column {column!r} but {_shown(cell)}: fill it or leave the row out"
        )
    try:
        cell.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place} holds half a surrogate pair in the column {column!r}, which is not text") from error
    return cell


def filled(cell: Any, place: str, column: str) -> str:
    """As `text`, and not blank."""
    if not (found := text(cell, place, column)).strip():
        raise UserError(f"{place} has an empty text in the column {column!r}: fill it or leave the row out")
    return found


def spelt(cell: Any, place: str, column: str, names: Sequence[str] = ()) -> str:
    """How a label is spelt: an integer as its name, where integers have names; raises UserError where there is none."""
    if isinstance(cell, numbers.Integral) and not isinstance(cell, bool) and names:
        if 0 <= int(cell) < len(names):
            return names[int(cell)]
        if cell == -1:  # what stands for no label in Hugging Face's and TFDS's test splits
            raise _missing(place, column)
        raise UserError(f"{place} has the label {cell} in the column {column!r}, of {len(names)}: {', '.join(names)}")
    if cell is None or cell == "":
        raise _missing(place, column)
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, numbers.Integral):
        return str(int(cell))
    if isinstance(cell, str | bytes):
        return text(cell, place, column)
    raise UserError(f"{place} has {_shown(cell)} in the column {column!r}: give a label as text or as an integer")


def chosen(label: str, index: Mapping[str, int], place: str, column: str) -> int:
    """The place of a label among a task's; raises UserError naming them."""
    if label not in index:
        known = ", ".join(list(index)[:20])
        raise UserError(f"{place} has the label {label[:100]!r} in the column {column!r}: known are {known}")
    return index[label]


def number(cell: Any, place: str, column: str, limits: tuple[float, float] | None = None) -> float:
    """A number that float32 holds, within limits; raises UserError."""
    if cell is None or cell == "":
        raise _missing(place, column)
    try:
        found = math.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not abs(found) <= _GREATEST:
        raise UserError(
            f"{place} has {_shown(cell)} in the column {column!r}: give a finite number, of at most {_GREATEST:g}"
        )
    if limits and not limits[0] <= found <= limits[1]:
        raise UserError(f"{place} has {found:g} in the column {column!r}, outside {limits[0]:g} to {limits[1]:g}")
    return found


def items(cell: Any, place: str, column: str) -> list[Any]:
    """What a cell lists, separated by spaces where it is text, and at least one thing; raises UserError."""
    found = cell.split() if isinstance(cell, str) else cell
    if not isinstance(found, list | tuple) or not found:
        raise UserError(f"{place} lists nothing in the column {column!r}: give words, separated by spaces or as a list")
    return list(found)


def _missing(place: str, column: str) -> UserError:
    return UserError(f"{place} has no label in the column {column!r}: give one or leave the row out")


def _shown(cell: Any) -> str:
    return "nothing" if cell is None else repr(cell)[:100]
