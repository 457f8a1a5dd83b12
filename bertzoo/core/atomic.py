"""Write files and directories that appear complete or not at all: temporary files are synced, then renamed."""

import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.core.errors import UserError

_LOG = logging.getLogger(__name__)
_PREFIX = ".bertzoo."  # name prefix of temporary directories
_FILES = "bertzoo.files"  # entry of a temporary directory: the folder of its files
_REPLACED = "bertzoo.replaced"  # its other entry: a folder of files that are being replaced


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
        temporary.unlink(missing_ok=True)
        temporary.touch(exist_ok=False)  # a link there would redirect the write to another file
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
    with _writing(destination, _new_directory):
        pass


def check_new_file(destination: Path, *companions: str) -> None:
    """Raise UserError unless the file `destination` and its `companions` beside it are new and can be created."""
    with _writing(destination, lambda path: _new_file(path, companions)):
        pass


@contextmanager
def new_files(destination: Path, *companions: str, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary directory; its files move to the folder of `destination`, or are deleted after an error.

    The caller writes a file with the name of `destination` into the temporary directory, and optionally the files or
    directories named in `companions`. The companions move first, in order: once `destination` exists, the output is
    complete. If the process is killed between two moves, the moved companions stay, without `destination`.

    replace: take `destination` away first, then move the files over existing ones of this user; other files in existing
    directories stay. An error brings the old files back. A kill loses the old `destination`: the caller must write it
    again where companions exist without it.

    Raises UserError if the directory cannot be created, a name is taken or, with `replace`, belongs to another user.
    Raises WriteError if writing fails.
    """
    with _writing(destination, _resolved if replace else lambda path: _new_file(path, companions)) as place:
        folder, last = place.resolved.parent, place.resolved.name
        yield place.files
        _finish(place.files)
        names = [*(name for name in companions if (place.files / name).exists()), last]
        (place.files / last).stat()  # raises if it is missing, before anything moves
        if replace:
            _check_own(place.files, folder)
        else:
            _new_file(destination, companions)
        replaced = place.temporary / _REPLACED
        replaced.mkdir()
        undo: list[tuple[Path, Path]] = []  # renames that restore the folder, oldest first
        try:
            if replace and place.resolved.is_file():
                undo.append((replaced / last, place.resolved))
                place.resolved.replace(replaced / last)
            for name in names:
                _move(place.files / name, folder / name, replaced, undo)
        except BaseException:
            for source, target in reversed(undo):
                with suppress(OSError):  # of a rename that was not done; the other files come back
                    source.replace(target)
            raise


@contextmanager
def new_directory(destination: Path, repeat: bool = False) -> Iterator[Path]:
    """Yield a temporary directory, which is renamed to `destination` at the end, or removed after an error.

    repeat: accept an existing `destination` that holds the same files, and remove the temporary directory.

    Raises UserError if `destination` is taken or cannot be created, WriteError if writing fails.
    """
    with _writing(destination, _resolved if repeat else _new_directory) as place:
        yield place.files
        _finish(place.files)
        if not repeat or hashes(place.files) != hashes(place.resolved):
            _new_directory(destination)
            place.files.replace(place.resolved)


def remove_leftovers(destination: Path) -> None:
    """Remove the temporary directories that killed processes of this user left beside `destination`, and log each.

    A directory stays if it is in use, belongs to another user, is open to other users, or holds anything but the
    folders of a write: others who may write here could have put it here. A line names one of this user, such as one
    that an earlier version left. Raises no error for an unusable `destination`.
    """
    with suppress(OSError, RuntimeError, ValueError):
        for leftover in destination.resolve().parent.glob(f"{_PREFIX}*"):
            with ExitStack() as stack, suppress(OSError):  # the leftover is in use, or a link
                descriptor = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.fstat(descriptor)
                if status.st_uid != os.geteuid():
                    continue
                if stat.S_IMODE(status.st_mode) & 0o077 == 0 and {*os.listdir(descriptor)} <= {_FILES, _REPLACED}:
                    _remove(leftover, descriptor)
                    _LOG.warning("Removed %s, the unfinished output of a killed process.", leftover)
                else:
                    _LOG.warning("%s may be the unfinished output of an earlier version. Remove it if so.", leftover)


def hashes(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in a directory, by relative path."""
    return {str(path.relative_to(directory)): file_hash(path) for path in directory.rglob("*") if path.is_file()}


def file_hash(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


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

    temporary: directory that other users cannot enter.
    lock: descriptor of the lock on this directory.
    resolved: absolute destination.
    created: parents of the destination that the write created.
    """

    temporary: Path
    lock: int
    resolved: Path
    created: list[Path]

    @property
    def files(self) -> Path:
        """Directory that receives the files."""
        return self.temporary / _FILES


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


def _check_own(source: Path, target: Path) -> None:
    """Raise UserError if a path below `target` that a file below `source` replaces is a link or another user's."""
    for path in (target / path.relative_to(source) for path in source.rglob("*")):
        if os.path.lexists(path) and (path.is_symlink() or path.lstat().st_uid != os.geteuid()):
            raise UserError(f"{path} is a link or belongs to another user. Use a new file name.")


def _move(source: Path, target: Path, replaced: Path, undo: list[tuple[Path, Path]]) -> None:
    """Rename a file or directory; the files of a directory move into an existing directory one by one.

    replaced: directory for the files that it replaces. undo: receives the renames that restore `target`.
    """
    if source.is_dir() and target.is_dir():
        for path in source.iterdir():
            _move(path, target / path.name, replaced, undo)
        return
    back = target, source
    if target.exists():
        back = replaced / str(len(undo)), target
        try:
            os.link(target, back[0])
        except OSError:  # a file system without hard links
            shutil.copy2(target, back[0])
    undo.append(back)
    source.replace(target)


@contextmanager
def _writing(destination: Path, resolve: Callable[[Path], Path]) -> Iterator[_Place]:
    """Begin a write as `_begin` does; remove its temporary directory and empty new parents at the end.

    Raises WriteError for an OSError.
    """
    place = _begin(destination, resolve)
    try:
        place.files.mkdir()
        yield place
    except OSError as error:
        reason = error.strerror or error
        raise WriteError(
            f"{destination} was not written: {reason}. Correct this, or write to another directory."
        ) from error
    finally:
        _remove(place.temporary, place.lock)
        os.close(place.lock)
        _remove_parents(place.created)


def _remove(temporary: Path, descriptor: int) -> None:
    """Remove an open temporary directory; a directory that others have put in its place keeps its files."""
    for name in (_FILES, _REPLACED):
        shutil.rmtree(name, ignore_errors=True, dir_fd=descriptor)
    with suppress(OSError):
        temporary.rmdir()


def _remove_parents(created: list[Path]) -> None:
    for parent in reversed(created):
        with suppress(OSError):  # another process has written there
            parent.rmdir()


def check_file(name: Path | str, flag: str) -> None:
    """Raise UserError if no file can be written at the path `name`; `flag` starts the message."""
    if Path(name).is_dir():
        raise UserError(f"{flag} is a directory. Name a file.")
    check_folder(Path(name).parent, flag)


def check_folder(folder: Path, flag: str) -> None:
    """Raise UserError if no temporary file can be created in a directory; `flag` starts the message."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise UserError(f"{flag} cannot be written: {folder}: {error.strerror}. Name another place.") from error
