"""Locks on directories, held by one process at a time."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

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
