"""Files and directories that appear complete or not at all: written beside their place, synced, then renamed."""

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bertzoo.core.errors import UserError


class WriteError(UserError):
    """An output could not be written, for example on a full disk; the message names it and the reason (exit code 1)."""

    exit_code = 1


@contextmanager
def replacing(path: Path, shared: bool = False) -> Iterator[Path]:
    """A temporary path beside `path`, synced and renamed to it at the end; removed if anything is raised.

    Whatever was at `path` stays readable until then. shared: other processes may write the same file at once, so the
    temporary name is unique; otherwise the next write replaces what a killed one left. OSErrors carry the name of
    `path` if they have none.
    """
    temporary = path.with_name(path.name + (f".{uuid.uuid4().hex[:8]}.tmp" if shared else ".tmp"))
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = error.filename or str(path)  # write() of a full disk raises without a name
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file; no reader ever sees half of it."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, value: Any, indent: int = 1, shared: bool = False) -> None:
    """Write a JSON file that ends in a line break; no reader ever sees half of it. shared: as in `replacing`."""
    with replacing(path, shared) as temporary:
        temporary.write_text(json.dumps(value, indent=indent) + "\n", encoding="utf-8")


def check_new_directory(destination: Path) -> None:
    """Create and remove `destination`; raises UserError unless it can become a new directory."""
    temporary, _, created = _begin(destination)
    _undo(temporary, created)


def check_new_file(destination: Path, *companions: str) -> None:
    """Raise UserError unless `destination` and its companions can be created as new files of one directory."""
    temporary, _, created = _begin(destination, lambda path: _new_file(path, companions))
    _undo(temporary, created)


@contextmanager
def new_files(destination: Path, *companions: str) -> Iterator[Path]:
    """A temporary directory whose contents move beside `destination` at the end; removed if anything is raised.

    The caller writes a file named like `destination` into it and any of the companions, files or directories. The
    companions move first, so that `destination` exists only when everything does.

    Raises UserError if a name is taken or the place takes no files, WriteError if writing fails.
    """
    temporary, resolved, created = _begin(destination, lambda path: _new_file(path, companions))
    placed: list[Path] = []
    try:
        yield temporary
        _finish(temporary)
        written = [name for name in companions if (temporary / name).exists()]
        for name in (*written, resolved.name):
            placed.append((temporary / name).replace(resolved.parent / name))
        shutil.rmtree(temporary)
    except BaseException as error:
        for path in placed:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        _undo(temporary, created)
        if isinstance(error, OSError):
            raise WriteError(f"{destination} was not written: {error.strerror or error}") from error
        raise


@contextmanager
def new_directory(destination: Path) -> Iterator[Path]:
    """A temporary directory renamed to `destination` at the end; removed if anything is raised.

    Raises UserError if the name is taken or cannot be created, WriteError if writing fails.
    """
    temporary, resolved, created = _begin(destination)
    try:
        yield temporary
        _finish(temporary)
        temporary.replace(resolved)
    except OSError as error:
        _undo(temporary, created)
        raise WriteError(f"{destination} was not written: {error.strerror or error}") from error
    except BaseException:
        _undo(temporary, created)
        raise


def _finish(temporary: Path) -> None:
    """Set the modes that the umask allows, which mkdtemp and safetensors restrict, and sync every file."""
    mask = os.umask(0)
    os.umask(mask)
    temporary.chmod(0o777 & ~mask)
    for path in temporary.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
        if path.is_dir():
            continue
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _begin(destination: Path, resolve: Callable[[Path], Path] | None = None) -> tuple[Path, Path, list[Path]]:
    """The temporary directory, the resolved destination, and the parents created for it, the innermost last."""
    created: list[Path] = []
    try:
        resolved = (resolve or _new_directory)(destination)
        for parent in reversed(resolved.parents):
            if not parent.is_dir():
                parent.mkdir()
                created.append(parent)
        return Path(tempfile.mkdtemp(prefix=".bertzoo.", dir=resolved.parent)), resolved, created
    except (OSError, RuntimeError, ValueError) as error:  # the last two: links in a circle, a NUL
        _undo(None, created)
        file = getattr(error, "filename", None)
        reason = getattr(error, "strerror", None) or str(error)
        where = f" ({Path(file).parent})" if isinstance(error, PermissionError) and file else ""
        raise UserError(f"{destination} cannot be created: {reason}{where}. Use another directory.") from error


def _new_file(destination: Path, companions: Sequence[str]) -> Path:
    """The resolved path; raises UserError if it or a companion exists, OSError if it cannot exist."""
    for path in (destination, *(destination.parent / name for name in companions)):
        if path.is_dir():
            raise UserError(f"{path} is a directory. Use a new file name.")
        if os.path.lexists(path):
            raise UserError(f"{path} exists. Use a new file name.")
    return _resolved(destination)


def _new_directory(destination: Path) -> Path:
    """The resolved path; raises UserError if something is there, OSError if it cannot exist."""
    resolved = _resolved(destination)
    if resolved.exists() and not resolved.is_dir():
        raise UserError(f"{destination} is a file. Use a new directory.")
    if resolved.is_dir() and any(resolved.iterdir()):
        raise UserError(f"{destination} exists and is not empty. Use a new directory.")
    if resolved == Path.cwd():  # the user's shell would keep showing the old, empty directory
        raise UserError(f"{destination} is the working directory. Use a new directory.")
    return resolved


def _resolved(destination: Path) -> Path:
    """The path without links and dots; raises UserError if a parent is a file."""
    resolved = destination.resolve()
    parent = next(parent for parent in resolved.parents if os.path.lexists(parent))
    if not parent.is_dir():
        raise UserError(f"{destination} cannot be created: {parent} is a file. Use another directory.")
    with suppress(FileNotFoundError):
        os.lstat(resolved)  # raises if the name is too long
    return resolved


def _undo(temporary: Path | None, created: list[Path]) -> None:
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
    for parent in reversed(created):
        with suppress(OSError):  # another process has written there
            parent.rmdir()
