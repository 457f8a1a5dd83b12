"""The compiler's results on disk: a step takes minutes to compile, and jax's own cache does not serve topologies."""

import hashlib
from pathlib import Path
from typing import Any

from bertzoo.core import atomic, paths
from bertzoo.core.documents import read_json


def result_folder(folder: Path | str | None = None) -> Path:
    """Return `folder`, or by default a folder of the user's cache; it need not exist."""
    return Path(folder).expanduser() if folder else paths.cache_folder("plans")


def result_key(program: str, *versions: str) -> str:
    """Name the result of compiling a program's text; `versions`: of jax and libtpu, and the slice."""
    return hashlib.sha256("\0".join((*versions, program)).encode()).hexdigest()


def read_result(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the result with that name, or None if there is none or its file is damaged."""
    try:
        return read_json(folder / f"{name}.json")
    except (FileNotFoundError, ValueError):
        return None


def write_result(folder: Path, name: str, result: dict[str, Any]) -> None:
    """Save a result; the folder need not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_json(folder / f"{name}.json", result, shared=True)  # another plan may compile the same step
