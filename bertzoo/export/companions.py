"""Files beside an exported file: its metadata JSON and the folder with its tokenizer, card and test rows."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from bertzoo.conversion.pretrained import SOURCE
from bertzoo.core import atomic
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.export.options import Precision

_PORTS = [(str, Literal["float32", "int32", "int64", "int8", "uint8"], [int])]  # name, type and shape
_METADATA = {
    "format": str,
    "precision": Precision,
    "model": {"vocab_size?": int, "max_positions?": int},
    "head": {"kind": str},
    "inputs": {str: str},
    "source": SOURCE,
    "signatures": {str: {"length": int}},
    "ports": {str: {"inputs": _PORTS, "outputs": _PORTS}},
    "parameters": int,
    "lengths": {"shortest": int, "longest": int},
    "flops": {str: int},
    "sentences": str | list,
    "scores": dict | None,
    "request": str,
}


def companions(file: Path) -> tuple[str, str]:
    """Return the names of a file's metadata JSON and companion folder; both include the file's suffix."""
    return f"{file.name}.json", f"{file.name}.files"


def read_metadata(file: Path, *needed: str) -> dict[str, Any] | None:
    """Return the metadata JSON beside a file, or None if there is none.

    needed: keys that the JSON must have. Raises UserError if the JSON is damaged, lacks a key, or is another file's.
    """
    path = file.with_name(companions(file)[0])
    if not path.is_file():
        return None
    try:
        pattern = {key if key in needed else f"{key}?": types for key, types in _METADATA.items()}
        document = read_json(path, {"sha256": str, **pattern})
        recorded = document["sha256"]
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}. Convert the model again, or move {path.name} away.") from error
    if recorded != (actual := atomic.file_hash(file)):
        raise UserError(
            f"{path} describes a file with the hash {recorded}, but {file.name} has the hash {actual}. Convert the "
            f"model again, or move {path.name} away."
        )
    return document


def interrupted_write(file: Path) -> dict[str, Any]:
    """Return "request" of a JSON that a killed `convert` left without its file; {} without one."""
    with suppress(OSError, ValueError):
        return read_json(file.with_name(companions(file)[0]), {"request": str})
    return {}
