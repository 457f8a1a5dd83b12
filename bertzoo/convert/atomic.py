"""A directory that appears complete or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertzoo.errors import UserError


def check(destination: Path) -> None:
    """Raise UserError unless `destination` can become a new directory."""
    if destination.is_dir() and any(destination.iterdir()):
        raise UserError(f"{destination} exists and is not empty; name a new directory")
    if destination.exists() and not destination.is_dir():
        raise UserError(f"{destination} is a file; name a new directory")


@contextmanager
def directory(destination: Path) -> Iterator[Path]:
    """An empty directory beside `destination` that takes its name at the end; removed where anything is raised."""
    check(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o777 & ~mask)  # mkdtemp makes it private
        for path in filter(Path.is_file, temporary.rglob("*")):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        temporary.replace(destination)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
