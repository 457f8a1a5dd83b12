"""A directory, or a few files, that appear complete or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bertzoo.core.errors import UserError


class Unwritten(UserError):
    """A directory could not be written, such as for a full disk; the message names it and says why (exit code 1)."""

    exit_code = 1


def check(destination: Path) -> None:
    """Raise UserError unless `destination` can become a new directory, which is tried; nothing of that stays."""
    temporary, _, made = _begin(destination)
    _undo(temporary, made)


def check_file(destination: Path, *companions: str) -> None:
    """Raise UserError unless `destination` can become a new file, and the companions others beside it."""
    temporary, _, made = _begin(destination, lambda path: _new_file(path, companions))
    _undo(temporary, made)


@contextmanager
def files(destination: Path, *companions: str) -> Iterator[Path]:
    """An empty directory for a file of the name of `destination` and those of its companions that there are, files or
    directories, which take their places at the end, the file itself last; nothing stays where anything is raised.

    Raises UserError where there is no place for them, Unwritten where writing fails.
    """
    temporary, resolved, made = _begin(destination, lambda path: _new_file(path, companions))
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
        _undo(temporary, made)
        if isinstance(error, OSError):
            raise Unwritten(f"{destination} was not written: {error.strerror or error}") from error
        raise


@contextmanager
def directory(destination: Path) -> Iterator[Path]:
    """An empty directory beside `destination` that takes its name at the end; removed where anything is raised.

    Raises UserError where there is no place for it, Unwritten where writing fails.
    """
    temporary, resolved, made = _begin(destination)
    try:
        yield temporary
        _finish(temporary)
        temporary.replace(resolved)
    except OSError as error:
        _undo(temporary, made)
        raise Unwritten(f"{destination} was not written: {error.strerror or error}") from error
    except BaseException:
        _undo(temporary, made)
        raise


def _finish(temporary: Path) -> None:
    """Let whoever the umask lets read what was written, and see it on the disk."""
    mask = os.umask(0)
    os.umask(mask)
    temporary.chmod(0o777 & ~mask)  # mkdtemp makes it private
    for path in temporary.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)  # so does the writer of safetensors
        if path.is_dir():
            continue
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _begin(destination: Path, new: Callable[[Path], Path] | None = None) -> tuple[Path, Path, list[Path]]:
    """The temporary directory, what it is to become, and the parents that were made for it, the innermost last."""
    made: list[Path] = []
    try:
        resolved = (new or _new_directory)(destination)
        for parent in reversed(resolved.parents):
            if not parent.is_dir():
                parent.mkdir()
                made.append(parent)
        return Path(tempfile.mkdtemp(prefix=".bertzoo.", dir=resolved.parent)), resolved, made
    except (OSError, RuntimeError, ValueError) as error:  # the last two: links in a circle, a NUL
        _undo(None, made)
        file = getattr(error, "filename", None)
        what = getattr(error, "strerror", None) or str(error)
        where = f" ({Path(file).parent})" if isinstance(error, PermissionError) and file else ""
        raise UserError(f"{destination} cannot be made: {what}{where}; name another directory") from error


def _new_file(destination: Path, companions: Sequence[str]) -> Path:
    """The place itself, in a directory behind links and dots; raises UserError where something is there, companions
    too, OSError where none can be.
    """
    for path in (destination, *(destination.parent / name for name in companions)):
        if path.is_dir():
            raise UserError(f"{path} is a directory; name a new file")
        if os.path.lexists(path):
            raise UserError(f"{path} exists; name a new file")
    return _resolved(destination)


def _new_directory(destination: Path) -> Path:
    """The place itself, behind links and dots; raises UserError where something is there, OSError where none can be."""
    resolved = _resolved(destination)
    if resolved.exists() and not resolved.is_dir():
        raise UserError(f"{destination} is a file; name a new directory")
    if resolved.is_dir() and any(resolved.iterdir()):
        raise UserError(f"{destination} exists and is not empty; name a new directory")
    if resolved == Path.cwd():  # whoever stands in it would go on to see the old, empty one
        raise UserError(f"{destination} is the working directory; name a new directory")
    return resolved


def _resolved(destination: Path) -> Path:
    """A place under directories alone, behind links and dots."""
    resolved = destination.resolve()
    parent = next(parent for parent in resolved.parents if os.path.lexists(parent))
    if not parent.is_dir():
        raise UserError(f"{destination} cannot be made: {parent} is a file; name another directory")
    with suppress(FileNotFoundError):
        os.lstat(resolved)  # raises where the name is too long
    return resolved


def _undo(temporary: Path | None, made: list[Path]) -> None:
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
    for parent in reversed(made):
        with suppress(OSError):  # somebody else has put something there
            parent.rmdir()
