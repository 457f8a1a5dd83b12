"""Read JSON and TOML: any invalid text, even a hostile one, raises DocumentError.

A pattern describes the types that a document must have. It is one of:

- a type, a union of types or a Literal; `object` allows any value, and `float` allows integers;
- `[pattern]` for a list whose items all fit the pattern;
- a tuple of patterns for a list with one item per pattern;
- `{key: pattern}` for an object with these keys and any others; a key that ends in "?" is optional;
- `{str: pattern}` for an object whose values all fit the pattern.

Integers must fit 64 bits.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from bertzoo.core.errors import UserError
from bertzoo.core.schema import fits_bits, join, show

LIMIT = 256 << 20  # bytes of JSON; the largest documents are tokenizers and SQuAD's files
TOML_LIMIT = 1 << 20  # bytes; configs have a few thousand
CONTAINERS = 4 << 20  # lists and objects in one JSON document: Python needs up to 200 bytes for each
_DEEPEST = 100  # parts of a dotted TOML key, for which the parser's time grows with the square
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{{_DEEPEST}}}")
_NAMES = {dict: "an object", list: "a list", tuple: "a list", str: "text", NoneType: "null"}
_NAMES |= {bool: "true or false", int: "an integer", float: "a number"}


class DocumentError(UserError, ValueError):
    """Text that is not valid JSON or TOML, or not of the required type; the message gives the reason."""


def read_json(path: Path, pattern: Any = dict, advice: str = "", **options: Any) -> Any:
    """Return the content of a JSON file in UTF-8.

    pattern: required types.
    advice: last sentence of the error; if set, the error also names the file.
    options: arguments of `json.loads`.

    Raises DocumentError if the content is invalid, OSError if the file cannot be read.
    """
    try:
        return parse_json(_contents(path, LIMIT), pattern, **options)
    except DocumentError as error:
        raise (DocumentError(f"{path} is damaged: {error}. {advice}") if advice else error) from error.__cause__


def parse_json(text: str | bytes, pattern: Any = dict, containers: int = CONTAINERS, **options: Any) -> Any:
    """Return the value of a JSON text, or of its UTF-8 bytes.

    containers: largest allowed number of lists and objects. options: arguments of `json.loads`. Raises DocumentError if
    the text is not JSON, does not fit the pattern or exceeds `containers`.
    """
    try:
        text = _decoded(text)
        if len(text) > containers and (count := text.count("[") + text.count("{")) > containers:
            raise ValueError(f"the text has {count:,} brackets, but at most {containers:,} are allowed")
        value = json.loads(text, **options)
    except (ValueError, RecursionError) as error:  # ValueError also for integers of too many digits
        raise DocumentError(_reason(error)) from error
    return fitting(value, pattern)


def read_toml(path: Path, pattern: Any = dict) -> dict[str, Any]:
    """Return the content of a TOML file in UTF-8.

    Raises DocumentError if it is invalid or does not fit the pattern, OSError if the file cannot be read.
    """
    return fitting(parse_toml(_contents(path, TOML_LIMIT)), pattern)


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """Return the tables of a TOML text, or of its UTF-8 bytes; raises DocumentError if it is invalid."""
    try:
        text = _decoded(text)
        if (match := _DEEP_KEY.search(text)) is not None:
            raise ValueError(f"line {text.count(chr(10), 0, match.start()) + 1} has a key of over {_DEEPEST} parts")
        return tomllib.loads(text)
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


def _contents(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            size = getattr(path.stat(), "st_size", 0)  # a file in a bucket has none
            data = file.read(limit + 1) if size <= limit else b""
    except OSError as error:
        error.filename = error.filename or str(path)  # a failing read() names no file
        raise
    if size > limit or len(data) > limit:
        raise DocumentError(f"it has {max(size, len(data)):,} bytes, more than {limit:,}")
    return data


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8-sig")


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8 text"
    return str(error)
