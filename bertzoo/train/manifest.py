"""A sha256 manifest beside every checkpoint: what orbax restores without a word, a flipped bit, is found here."""

import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path

from bertzoo.core import atomic
from bertzoo.core.errors import CheckpointError
from bertzoo.core.paths import is_url

SUFFIX = ".sha256.json"


def path_of(checkpoint: Path) -> Path:
    """checkpoints/400 -> checkpoints/400.sha256.json."""
    return checkpoint.with_name(checkpoint.name + SUFFIX)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_of(directory: Path) -> Iterator[Path]:
    """The files under a directory, sorted."""
    for path in sorted(directory.iterdir()):  # a bucket refuses rglob
        if path.is_dir():
            yield from files_of(path)
        else:
            yield path


def write(checkpoint: Path) -> None:
    """Write the manifest of a committed checkpoint, atomically."""
    files = {str(f.relative_to(checkpoint)): _digest(f) for f in files_of(checkpoint)}
    path = path_of(checkpoint)
    if is_url(str(path)):  # an object is there whole or not at all
        path.write_text(json.dumps({"files": files}, indent=1))
        return
    atomic.write_json(path, {"files": files})


def verify(checkpoint: Path, names: Collection[str] | None = None) -> bool:
    """Compare a checkpoint with its manifest; False when there is none, because the run was killed before writing it.

    names: of the only files whose contents are read; the others need only be there.
    Raises CheckpointError naming the first file that is missing or changed, or the manifest that cannot be read.
    """
    path = path_of(checkpoint)
    if not path.exists():
        return False
    try:
        files = json.loads(path.read_text())["files"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the manifest {path} cannot be read ({error})") from error
    for name, digest in files:
        file = checkpoint / name
        if not file.is_file():
            raise CheckpointError(f"the checkpoint's file {file} is missing")
        if (names is None or file.name in names) and _digest(file) != digest:
            raise CheckpointError(f"the checkpoint's file {file} is damaged: its sha256 is not the one in {path}")
    return True


def prune(directory: Path) -> None:
    """Remove the manifests whose checkpoints are gone."""
    for path in directory.glob(f"*{SUFFIX}*"):
        if not path.with_name(path.name.split(SUFFIX)[0]).exists():
            path.unlink(missing_ok=True)
