"""Cache compiler results on disk, because a step takes minutes to compile.

JAX's own cache does not hold programs compiled for devices that this machine lacks.
"""

import hashlib
from pathlib import Path
from typing import Any

from bertzoo.core import atomic, paths
from bertzoo.core.documents import fitting, read_json

_SIZES = ("needed", "arguments", "temporaries", "code")
_COLLECTIVE = {"kind": str, "group": int, "count": int, "size": int, "sent": int}
_TRAFFIC = {"hbm": {str: int}, "vmem": int, "accessed": int}
_RESULT = {"seconds": float, **{f"{size}?": int for size in _SIZES}, "collectives?": list | None}


def result_folder(folder: Path | str | None = None) -> Path:
    """Return `folder` or, by default, "plans" in the user's cache folder; the folder may not exist yet."""
    return Path(folder).expanduser() if folder else paths.cache_folder("plans")


def result_key(program: str, *versions: str) -> str:
    """Return a cache key: the SHA-256 of a lowered program and of `versions`.

    versions: the versions of jax and libtpu, the slice's name, and the revision of the account of bytes.
    """
    return hashlib.sha256("\0".join((*versions, program)).encode()).hexdigest()


def read_result(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the result that was saved as `name`, or None if its file is missing or damaged."""
    try:
        result = read_json(folder / f"{name}.json", _RESULT)
        fitting(result.get("collectives") or [], [_COLLECTIVE])
        if result.get("traffic") is not None:  # results of earlier versions have none
            fitting(result["traffic"], _TRAFFIC)
        return result
    except (FileNotFoundError, ValueError):
        return None


def write_result(folder: Path, name: str, result: dict[str, Any]) -> None:
    """Save a result as `name`.json; creates the folder if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_json(folder / f"{name}.json", result, shared=True)  # another plan may compile the same step
