"""Write files and directories that appear complete or not at all: temporary files are synced, then renamed."""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.core.documents import DocumentError, read_json
from bertzoo.core.errors import UserError

_PREFIX = ".bertzoo."  # name prefix of temporary directories
# Files in a temporary directory: names of the files being moved out of it, in order, to new places or over old files.
_MOVING, _REPLACING = ".moving", ".replacing"


class WriteError(UserError):
    """A failure to write an output, for example on a full disk; the message names file and reason (exit code 1)."""

    exit_code = 1


@contextmanager
def replacing(path: Path, shared: bool = False) -> Iterator[Path]:
    """Yield a temporary path; the file there is renamed to `path` at the end, or removed after an error.

    An existing file at `path` stays readable until the end.

    shared: whether other processes may write `path` at the same time. If True, the temporary name is unique; if False,
    it is always the same, so the next write replaces the temporary file of a killed process.

    An OSError without a filename gets `path` as its filename.
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
    """Write `data` to a file that appears complete or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, value: Any, indent: int = 1, shared: bool = False) -> None:
    """Write `value` as a JSON file that appears complete or not at all.

    indent: spaces per level. shared: whether other processes may write `path` at the same time.
    """
    with replacing(path, shared) as temporary:
        temporary.write_text(json.dumps(value, indent=indent) + "\n", encoding="utf-8")


def check_new_directory(destination: Path) -> None:
    """Raise UserError unless `destination` can be created as a new directory; leaves the disk unchanged."""
    _undo(_begin(destination, _new_directory))


def check_new_file(destination: Path, *companions: str) -> None:
    """Raise UserError unless the file `destination` and its `companions` beside it are new and can be created."""
    _undo(_begin(destination, lambda path: _new_file(path, companions)))


@contextmanager
def new_files(destination: Path, *companions: str, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary directory; its files move to the folder of `destination`, or are deleted after an error.

    The caller writes a file with the name of `destination` into the temporary directory, and optionally the files or
    directories named in `companions`. The companions move first: once `destination` exists, the output is complete. If
    the process is killed between two moves, the next call for the same parent directory deletes the moved companions.

    replace: move the files over existing ones. After a kill between two moves, the next call then makes the remaining
    moves.

    Raises UserError if the directory cannot be created or, without `replace`, a name is taken. Raises WriteError if
    writing fails.
    """
    place = _begin(destination, _resolved if replace else lambda path: _new_file(path, companions))
    temporary, resolved = place.temporary, place.resolved
    try:
        yield temporary
        _finish(temporary)
        written = [name for name in companions if (temporary / name).exists()]
        (temporary / resolved.name).stat()  # raises if it is missing, before anything moves
        write_json(temporary / (_REPLACING if replace else _MOVING), [*written, resolved.name])
        for name in () if replace else (*written, resolved.name):
            (temporary / name).replace(resolved.parent / name)
        _undo(place, done=True)
    except BaseException as error:
        with suppress(OSError):  # the first error is raised; the next call moves or removes what is left
            _undo(place)
        if isinstance(error, OSError):
            raise _write_error(destination, error) from error
        raise


@contextmanager
def new_directory(destination: Path, repeat: bool = False) -> Iterator[Path]:
    """Yield a temporary directory, which is renamed to `destination` at the end, or removed after an error.

    repeat: accept an existing `destination` that holds the same files, and remove the temporary directory.

    Raises UserError if `destination` is taken or cannot be created, WriteError if writing fails.
    """
    place = _begin(destination, _resolved if repeat else _new_directory)
    try:
        yield place.temporary
        _finish(place.temporary)
        if repeat and hashes(place.temporary) == hashes(place.resolved):
            _undo(place, done=True)
            return
        _new_directory(destination)
        place.temporary.replace(place.resolved)
        os.close(place.lock)
    except OSError as error:
        _undo(place)
        raise _write_error(destination, error) from error
    except BaseException:
        _undo(place)
        raise


def _write_error(destination: Path, error: OSError) -> WriteError:
    reason = error.strerror or error
    return WriteError(f"{destination} was not written: {reason}. Correct this, or write to another directory.")


def remove_leftovers(destination: Path) -> None:
    """Remove the temporary directories that killed processes left beside `destination`.

    `_clear` first finishes or undoes the moves of their files. Directories that cannot be opened or locked, such as
    those in use, stay. Raises no error for an unusable `destination`.
    """
    with suppress(OSError, RuntimeError, ValueError):
        folder = destination.resolve().parent
        for leftover in folder.glob(f"{_PREFIX}*"):
            with ExitStack() as stack, suppress(OSError):  # the leftover is in use, or a link
                descriptor = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _clear(leftover, folder)


def hashes(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in a directory, by relative path."""
    digests = {}
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                digests[str(path.relative_to(directory))] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _finish(temporary: Path) -> None:
    """Give a directory and its files default modes (mkdtemp and safetensors set stricter modes), and sync the files."""
    mask = os.umask(0)
    os.umask(mask)
    temporary.chmod(0o777 & ~mask)
    for path in temporary.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
        if path.is_dir():
            continue
        with path.open("rb") as file:
            os.fsync(file.fileno())


class _Place(NamedTuple):
    """A write in progress.

    temporary: directory that receives the files.
    lock: descriptor of the lock on this directory.
    resolved: absolute destination.
    created: parents of the destination that the write created.
    """

    temporary: Path
    lock: int
    resolved: Path
    created: list[Path]


def _begin(destination: Path, resolve: Callable[[Path], Path]) -> _Place:
    """Create and lock a temporary directory beside `destination`, after removing leftovers of killed processes.

    resolve: checks and resolves the destination. Raises UserError if the destination is unusable or a directory cannot
    be created.
    """
    created: list[Path] = []
    try:
        remove_leftovers(destination)  # a bad path raises below
        resolved = resolve(destination)
        for parent in reversed(resolved.parents):
            if not parent.is_dir():
                parent.mkdir()
                created.append(parent)
        while True:
            temporary = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=resolved.parent))
            # Another process may take the directory for a leftover until it is locked.
            if (lock := _lock(temporary)) is not None and temporary.is_dir():
                return _Place(temporary, lock, resolved, created)
            if lock is not None:
                os.close(lock)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle; ValueError: a NUL
        _remove_parents(created)
        file = getattr(error, "filename", None)
        reason = getattr(error, "strerror", None) or str(error)
        where = f" ({Path(file).parent})" if isinstance(error, PermissionError) and file else ""
        raise UserError(f"{destination} cannot be created: {reason}{where}. Use another directory.") from error


def _new_file(destination: Path, companions: Sequence[str]) -> Path:
    """Return the resolved destination; raises UserError if it or a companion exists, OSError for a bad name."""
    for path in (destination, *(destination.parent / name for name in companions)):
        if path.is_dir():
            raise UserError(f"{path} is a directory. Use a new file name.")
        if os.path.lexists(path):
            raise UserError(f"{path} exists. Use a new file name.")
    return _resolved(destination)


def _new_directory(destination: Path) -> Path:
    """Return the resolved destination; raises UserError unless it can be a new directory, OSError for a bad name."""
    resolved = _resolved(destination)
    if resolved.exists() and not resolved.is_dir():
        raise UserError(f"{destination} is a file. Use a new directory.")
    if resolved.is_dir() and any(resolved.iterdir()):
        raise UserError(f"{destination} exists and is not empty. Use a new directory.")
    if resolved == Path.cwd():  # the user's shell would keep showing the old, empty directory
        raise UserError(f"{destination} is the working directory. Use a new directory.")
    return resolved


def _resolved(destination: Path) -> Path:
    """Return the absolute path without links; raises UserError if a parent is a file, OSError for a bad name."""
    resolved = destination.resolve()
    parent = next(parent for parent in resolved.parents if os.path.lexists(parent))
    if not parent.is_dir():
        raise UserError(f"{destination} cannot be created: {parent} is a file. Use another directory.")
    with suppress(FileNotFoundError):
        os.lstat(resolved)  # raises if the name is too long
    return resolved


def _lock(directory: Path) -> int | None:
    """Lock a directory and return the lock's descriptor, or None if the directory is missing or already locked."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        pass  # without locks, remove_leftovers removes nothing
    return descriptor


def _clear(temporary: Path, folder: Path) -> None:
    """Remove a temporary directory, after finishing or undoing an incomplete move of its files to `folder`.

    A move that may replace existing files is finished: the remaining files move to `folder`. Any other move is undone:
    the files that have moved are deleted from `folder`.
    """
    for name in _listed(temporary / _REPLACING):
        path = folder / name
        if os.path.lexists(temporary / name):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            (temporary / name).replace(path)
    if names := _listed(temporary / _MOVING):
        *companions, last = names
        for name in companions if (temporary / last).exists() else ():
            if name.startswith(last) and not (temporary / name).exists():
                path = folder / name
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.rmtree(temporary, ignore_errors=True)


def _listed(path: Path) -> list[str]:
    """Return the names of the files being moved, listed in `path`; empty if `path` is missing or damaged."""
    with suppress(FileNotFoundError, DocumentError):
        names = read_json(path, [str])
        return names if all(name not in ("", "..") and Path(name).name == name for name in names) else []
    return []


def _undo(place: _Place, done: bool = False) -> None:
    """Remove a write's temporary directory, after finishing or undoing the move of its files as `_clear` does.

    done: whether the write succeeded; if not, empty parents that the write created are removed, too.
    """
    _clear(place.temporary, place.resolved.parent)
    with suppress(OSError):
        os.close(place.lock)
    if not done:
        _remove_parents(place.created)


def _remove_parents(created: list[Path]) -> None:
    for parent in reversed(created):
        with suppress(OSError):  # another process has written there
            parent.rmdir()
