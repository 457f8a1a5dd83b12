"""Read JSON and TOML: any invalid text, even a hostile one, raises DocumentError."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from bertzoo.core.errors import UserError

LIMIT = 256 << 20  # bytes of JSON; the largest documents are tokenizers and SQuAD's files
TOML_LIMIT = 1 << 20  # bytes; configs have a few thousand
CONTAINERS = 4 << 20  # lists and objects in one JSON document: Python needs up to 200 bytes for each
_DEEPEST = 100  # parts of a dotted TOML key, for which the parser's time grows with the square
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{{_DEEPEST}}}")
_NAMES = {dict: "an object", list: "a list"}


class DocumentError(UserError, ValueError):
    """Text that is not valid JSON or TOML, or not of the required type; the message gives the reason."""


def read_json(path: Path, kind: type = dict, advice: str = "", **options: Any) -> Any:
    """Return the content of a JSON file in UTF-8.

    kind: required type. advice: last sentence of the error, which then also names the file. options: for `json.loads`.
    Raises DocumentError, and OSError if the file cannot be read.
    """
    try:
        return parse_json(_contents(path, LIMIT), kind, **options)
    except DocumentError as error:
        raise (DocumentError(f"{path} is damaged: {error}. {advice}") if advice else error) from error.__cause__


def parse_json(text: str | bytes, kind: type = dict, containers: int = CONTAINERS, **options: Any) -> Any:
    """Return the value of a JSON text, or of its UTF-8 bytes.

    containers: most lists and objects. Raises DocumentError unless it is JSON of type `kind` within this limit.
    """
    try:
        text = _decoded(text)
        if len(text) > containers and (count := text.count("[") + text.count("{")) > containers:
            raise ValueError(f"it holds {count:,} brackets, more than {containers:,}")
        value = json.loads(text, **options)
    except (ValueError, RecursionError) as error:  # ValueError also for integers of too many digits
        raise DocumentError(_reason(error)) from error
    if not isinstance(value, kind):
        raise DocumentError(f"it is {_NAMES.get(type(value), repr(value)[:40])}, not {_NAMES[kind]}")
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file in UTF-8; raises DocumentError if it is invalid, OSError if unreadable."""
    return parse_toml(_contents(path, TOML_LIMIT))


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """Return the tables of a TOML text, or of its UTF-8 bytes; raises DocumentError if it is invalid."""
    try:
        text = _decoded(text)
        if (match := _DEEP_KEY.search(text)) is not None:
            raise ValueError(f"line {text.count(chr(10), 0, match.start()) + 1} has a key of over {_DEEPEST} parts")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(_reason(error)) from error


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
