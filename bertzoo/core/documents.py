"""The only readers of JSON and TOML: every failure, also of hostile text, is a DocumentError."""

import json
import tomllib
from pathlib import Path
from typing import Any

from bertzoo.core.errors import UserError

LIMIT = 256 << 20  # bytes of a document; the largest are tokenizers and SQuAD's files
_NAMES = {dict: "an object", list: "a list"}


class DocumentError(UserError, ValueError):
    """Text that is not the JSON or TOML that it should be; the message says why, as a clause."""


def read_json(path: Path, kind: type = dict, advice: str = "", **options: Any) -> Any:
    """Return the content of a JSON file in UTF-8.

    kind: the type that it must have. advice: makes the error a sentence that names the file. options: of `json.loads`.
    Raises DocumentError, and OSError if the file cannot be read.
    """
    try:
        return parse_json(_contents(path), kind, **options)
    except DocumentError as error:
        raise (DocumentError(f"{path} is damaged: {error}. {advice}") if advice else error) from error.__cause__


def parse_json(text: str | bytes, kind: type = dict, **options: Any) -> Any:
    """Return the value of a JSON text, or of its UTF-8 bytes; raises DocumentError if it has another type than kind."""
    try:
        value = json.loads(_decoded(text), **options)
    except (ValueError, RecursionError) as error:  # ValueError also for integers of too many digits
        raise DocumentError(_reason(error)) from error
    if not isinstance(value, kind):
        raise DocumentError(f"it is {_NAMES.get(type(value), repr(value)[:40])}, not {_NAMES[kind]}")
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file in UTF-8; raises DocumentError, and OSError if the file cannot be read."""
    return parse_toml(_contents(path))


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """Return the tables of a TOML text, or of its UTF-8 bytes; raises DocumentError."""
    try:
        return tomllib.loads(_decoded(text))
    except (ValueError, RecursionError) as error:
        raise DocumentError(_reason(error)) from error


def _contents(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT + 1) if (size := path.stat().st_size) <= LIMIT else b""
    except OSError as error:
        error.filename = error.filename or str(path)  # a failing read() names no file
        raise
    if size > LIMIT or len(data) > LIMIT:
        raise DocumentError(f"it has {max(size, len(data)):,} bytes, more than {LIMIT:,}")
    return data


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8-sig")


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8 text"
    return str(error)
