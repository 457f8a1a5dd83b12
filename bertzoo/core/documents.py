"""Read JSON and TOML: any invalid text raises DocumentError.

A pattern describes the types that a document must have. It is one of:

- a type, a union of types or a Literal; `object` allows any value, and `float` allows integers;
- `[pattern]` for a list whose items all fit the pattern;
- a tuple of patterns for a list with one item per pattern;
- `{key: pattern}` for an object with these keys and any others; a key that ends in "?" is optional;
- `{str: pattern}` for an object whose values all fit the pattern.

Integers must fit 64 bits.
"""

import json
import tomllib
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from bertzoo.core.errors import UserError, shorten

_NAMES = {dict: "an object", list: "a list", tuple: "a list", str: "text", NoneType: "null"}
_NAMES |= {bool: "true or false", int: "an integer", float: "a number"}


class DocumentError(UserError, ValueError):
    """Text that is not valid JSON or TOML, or not of the required type; the message states the reason."""


def read_json(path: Path, pattern: Any = dict, advice: str = "", **options: Any) -> Any:
    """Return the content of a JSON file in UTF-8.

    pattern: required types.
    advice: last sentence of the error; if set, the error also names the file.
    options: arguments of `json.loads`.

    Raises DocumentError if the content is invalid, OSError if the file cannot be read.
    """
    try:
        return parse_json(_contents(path), pattern, **options)
    except DocumentError as error:
        raise (DocumentError(f"{path} is damaged: {error}. {advice}") if advice else error) from error.__cause__


def parse_json(text: str | bytes, pattern: Any = dict, **options: Any) -> Any:
    """Return the value of a JSON text, or of its UTF-8 bytes.

    options: arguments of `json.loads`. Raises DocumentError if the text is not JSON or does not fit the pattern.
    """
    try:
        value = json.loads(_decoded(text), **options)
    except (ValueError, RecursionError) as error:  # ValueError also for integers of too many digits
        raise DocumentError(_reason(error)) from error
    return fitting(value, pattern)


def read_toml(path: Path, pattern: Any = dict) -> dict[str, Any]:
    """Return the content of a TOML file in UTF-8.

    Raises DocumentError if it is invalid or does not fit the pattern, OSError if the file cannot be read.
    """
    return fitting(parse_toml(_contents(path)), pattern)


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """Return the tables of a TOML text, or of its UTF-8 bytes; raises DocumentError if it is invalid."""
    try:
        return tomllib.loads(_decoded(text))
    except (ValueError, RecursionError) as error:
        raise DocumentError(_reason(error)) from error


def fitting(value: Any, pattern: Any, key: str = "") -> Any:
    """Return the value unchanged; raises DocumentError naming the first key whose value does not fit the pattern.

    key: dotted path of the value in its document; empty for the whole document.
    """
    if isinstance(pattern, list | tuple) and isinstance(value, list):
        if isinstance(pattern, tuple) and len(value) != len(pattern):
            raise DocumentError(f"{key or 'it'} has {len(value)} items, not {len(pattern)}")
        patterns = pattern if isinstance(pattern, tuple) else repeat(pattern[0])
        for index, (item, inner) in enumerate(zip(value, patterns, strict=False)):
            fitting(item, inner, join(key, str(index)))
    elif isinstance(pattern, dict) and isinstance(value, dict):
        if str in pattern:
            pattern = dict.fromkeys(value, pattern[str])
        for name, inner in pattern.items():
            plain = name.removesuffix("?")
            if plain in value:
                fitting(value[plain], inner, join(key, plain))
            elif plain == name:
                raise DocumentError(f"it has no {join(key, name)}")
    elif not any(_is_of(value, kind) for kind in _kinds(pattern)):
        shown = _NAMES[type(value)] if value is None or isinstance(value, list | dict) else show(value)
        shown += f" ({value.bit_length()} bits)" if isinstance(value, int) and value.bit_length() > 63 else ""
        expected = " or ".join(_NAMES[kind] if isinstance(kind, type) else show(kind) for kind in _kinds(pattern))
        raise DocumentError(f"{key or 'it'} is {shown}, not {expected}")
    return value


def _kinds(pattern: Any) -> Sequence[Any]:
    return [type(pattern)] if isinstance(pattern, list | tuple | dict) else get_args(pattern) or [pattern]


def _is_of(value: Any, kind: Any) -> bool:
    if not isinstance(kind, type):  # a value of a Literal
        return type(value) is type(kind) and value == kind
    if isinstance(value, bool):
        return kind in (bool, object)
    if isinstance(value, int) and kind in (int, float):
        return fits_bits(value, 64 if kind is int else 1024)
    return isinstance(value, kind)


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        error.filename = error.filename or str(path)  # a failing read() names no file
        raise


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8-sig")


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8 text"
    return str(error)


def fits_bits(value: Any, bits: int) -> bool:
    """Return whether a value is a signed integer of at most `bits` bits, and not a boolean.

    With bits = 64, the value fits an array's element; with bits = 1024, it can be converted to a float.
    """
    return type(value) is int and -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def join(path: str, key: str) -> str:
    """Return the dotted path of `key` in the table at `path`."""
    return f"{path}.{key}" if path else key


def show(value: Any) -> str:
    """Return `value` as error messages show it."""
    return str(value).lower() if isinstance(value, bool) else shorten(repr(value))
