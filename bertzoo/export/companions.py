"""Files beside an exported file: its metadata JSON and the folder with its tokenizer, card and test rows."""

import hashlib
from pathlib import Path
from typing import Any

from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError


def companions(file: Path) -> tuple[str, str]:
    """Return the names of a file's metadata JSON and companion folder.

    Both names include the file's suffix, so files of several formats can share a directory.
    """
    return f"{file.name}.json", f"{file.name}.files"


def read_metadata(file: Path) -> dict[str, Any] | None:
    """Return the metadata JSON beside a file, or None if there is none.

    Raises UserError if the JSON is damaged, belongs to another file or has the name that earlier versions gave it.
    """
    path, old = file.with_name(companions(file)[0]), file.with_suffix(".json")
    if not path.is_file():
        if old.is_file() and _recorded_hash(old) == file_hash(file):
            name, folder = companions(file)
            raise UserError(
                f"{old} describes {file.name} under a name of earlier versions. Rename {old.name} to {name}, and "
                f"{file.stem}.files to {folder}."
            )
        return None
    try:
        document = read_json(path)
        recorded = document["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged. Convert the model again, or move {path.name} away.") from error
    if recorded != (actual := file_hash(file)):
        raise UserError(
            f"{path} describes a file with the hash {recorded}, but {file.name} has {actual}. Convert the model again, "
            f"or move {path.name} away."
        )
    return document


def file_hash(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _recorded_hash(path: Path) -> str | None:
    try:
        return read_json(path)["sha256"]
    except (ValueError, KeyError, TypeError):  # not a metadata JSON
        return None
