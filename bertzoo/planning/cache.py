"""Results of the compiler kept by what was compiled: a step takes minutes, and jax's own cache serves no topologies."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from bertzoo.core import paths


def directory(given: str | None = None) -> Path:
    """Where results are kept: `given`, or a folder of the user's cache."""
    if given:
        return Path(given).expanduser()
    return paths.cache_folder("plans")


def key(text: str, *more: str) -> str:
    """The name of the result of compiling `text` for what `more` says: slice and versions."""
    return hashlib.sha256("\0".join((*more, text)).encode()).hexdigest()


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """The result of that name; None where there is none or it was cut off."""
    try:
        found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write(folder: Path, name: str, result: dict[str, Any]) -> None:
    """Keep a result; readers see all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{name}.{os.getpid()}.part"
    part.write_text(json.dumps(result), encoding="utf-8")
    part.replace(folder / f"{name}.json")
