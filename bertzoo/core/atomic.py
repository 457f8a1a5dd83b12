"""Write files and directories that appear complete or not at all: temporary files are synced, then renamed."""

import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from bertzoo.core.errors import UserError

NAME = ".lock"


def hold(lock: Path, name: str, patience: int = 1) -> TextIO:
    """Create, lock and return the file `lock`; closing it, or the end of the process, releases the lock.

    name: name of the locked directory in the error.
    patience: number of tries, a second apart, while another process holds the lock.

    Raises UserError if all tries fail, `lock` is a link, or the file system has no locks.
    """
    tries = 10
    while True:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack, suppress(FileNotFoundError):
            file = stack.enter_context(_open(lock))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                patience -= 1
                if not patience:
                    raise UserError(f"{name} is in use by another bertzoo process. Wait for it or stop it.") from error
                time.sleep(1)
                continue
            except OSError as error:
                raise UserError(
                    f"{lock.parent} is on a file system without file locks ({error.strerror}). Mount it with locks or "
                    "use another directory."
                ) from error
            # The last holder may have removed the file, and another process created it anew: compare inodes. Ten
            # times at most, because some file systems report two inodes for one file.
            tries -= 1
            if not tries or os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                stack.pop_all()
                return file


def is_held(lock: Path) -> bool:
    """Return whether a process of this machine holds the lock file `lock`, which need not exist."""
    with suppress(FileNotFoundError), open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def wait_for(directory: Path) -> Iterator[None]:
    """Wait until no other process of this machine holds the lock of `directory`, then hold it in this context."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _open(directory.with_name(directory.name + NAME)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _open(lock: Path) -> TextIO:
    """Open or create a lock file; raises UserError for a link, behind which another file could be."""
    try:
        return open(lock, "a", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666))
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise UserError(f"{lock} is a link, not a lock file. Remove the link.") from error


_LOG = logging.getLogger(__name__)
_FILES = "files"  # subfolder of a temporary directory, beside its lock


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
    complete. After a kill or an error between two moves, the moved companions remain, without `destination`.

    replace: delete `destination`, then move the files over existing files; existing directories keep their other files.
    The caller must write `destination` again where companions exist without it.

    Raises UserError if the directory cannot be created or a name is taken. Raises WriteError if writing fails.
    """
    with _writing(destination, _resolved if replace else lambda path: _new_file(path, companions)) as (files, resolved):
        yield files
        (files / resolved.name).stat()  # raises if it is missing, before anything moves
        _finish(files)
        if replace:
            resolved.unlink(missing_ok=True)
        else:
            _new_file(destination, companions)
        for name in (*companions, resolved.name):
            if (files / name).exists():
                _move(files / name, resolved.with_name(name))


@contextmanager
def new_directory(destination: Path, repeat: bool = False) -> Iterator[Path]:
    """Yield a temporary directory, which is renamed to `destination` at the end, or removed after an error.

    repeat: accept an existing `destination` that holds the same files, and remove the temporary directory.

    Raises UserError if `destination` is taken or cannot be created, WriteError if writing fails.
    """
    with _writing(destination, _resolved if repeat else _new_directory) as (files, resolved):
        yield files
        _finish(files)
        if not repeat or hashes(files) != hashes(resolved):
            _new_directory(destination)
            files.replace(resolved)


def remove_leftovers(destination: Path) -> None:
    """Remove the leftovers of a killed write of `destination`, unless another process writes it or it is unusable."""
    with suppress(UserError), _writing(destination, _resolved):
        pass


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


def _move(source: Path, target: Path) -> None:
    """Rename a file or directory; the files of a directory move into an existing directory one by one."""
    if source.is_dir() and target.is_dir():
        for path in source.iterdir():
            _move(path, target / path.name)
    else:
        source.replace(target)


@contextmanager
def _writing(destination: Path, resolve: Callable[[Path], Path]) -> Iterator[tuple[Path, Path]]:
    """Create and lock a temporary directory beside `destination`; remove it and empty new parents at the end.

    Yields the directory that receives the files, and the absolute destination.

    The directory has a fixed name, so the next write of `destination` removes the leftovers of a killed process.

    resolve: checks and resolves the destination. Raises UserError if the destination is unusable, a directory cannot be
    created or another process writes `destination`. Raises WriteError for a later OSError.
    """
    with ExitStack() as stack:
        try:
            resolved = resolve(destination)
            for parent in reversed(resolved.parents):
                if not parent.is_dir():
                    parent.mkdir()
                    stack.callback(_remove_empty, parent)
            temporary = resolved.with_name(f".{resolved.name}.writing")
            if temporary.is_symlink():
                raise UserError(f"{temporary} is a link, not a temporary directory. Remove the link.")
            temporary.mkdir(mode=0o700, exist_ok=True)
            stack.enter_context(hold(temporary / NAME, str(destination)))
            stack.callback(_remove, temporary)
            files = temporary / _FILES
            if files.exists():
                shutil.rmtree(files)
                _LOG.warning("Removed %s, the unfinished output of a killed process.", files)
            files.mkdir()
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle; ValueError: a NUL
            file = getattr(error, "filename", None)
            reason = getattr(error, "strerror", None) or str(error)
            where = f" ({Path(file).parent})" if isinstance(error, PermissionError) and file else ""
            raise UserError(f"{destination} cannot be created: {reason}{where}. Use another directory.") from error
        try:
            yield files, resolved
        except OSError as error:
            reason = error.strerror or error
            raise WriteError(
                f"{destination} was not written: {reason}. Correct this, or write to another directory."
            ) from error


def _remove(temporary: Path) -> None:
    """Remove a locked temporary directory; its lock file last, because then another process may use the directory."""
    shutil.rmtree(temporary / _FILES, ignore_errors=True)
    with suppress(OSError):
        (temporary / NAME).unlink()
        temporary.rmdir()


def _remove_empty(directory: Path) -> None:
    with suppress(OSError):  # it holds the destination, or files of another process
        directory.rmdir()


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
        raise UserError(f"{flag} cannot be written: {folder}: {error.strerror}. Name another path.") from error
