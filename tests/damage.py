"""Damage to files, as disks, interrupted writers and buckets do it."""

from pathlib import Path
from typing import Any, NoReturn


def largest(directory: Path) -> Path:
    """The largest file below a directory."""
    return max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def flip(path: Path, place: float = 0.5) -> Path:
    """Flip a bit of the byte at a share of the file's size."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 1
    path.write_bytes(data)
    return path


def truncate(path: Path) -> Path:
    """Cut the second half off."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def denied(*args: Any, **options: Any) -> NoReturn:
    """Refuse access, in the place of a bucket's method."""
    raise PermissionError("403: no access\nto the bucket")
