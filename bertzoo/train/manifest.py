"""A sha256 manifest beside every checkpoint: it reveals a flipped bit, which orbax restores without an error."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from bertzoo.core import atomic
from bertzoo.core.documents import read_json
from bertzoo.core.errors import CheckpointError
from bertzoo.core.paths import is_url

SUFFIX = ".sha256.json"
_ARRAY_DATA = "d"  # the directories in which orbax writes the arrays' bytes


def path_of(checkpoint: Path) -> Path:
    """Return the manifest's path: checkpoints/400 -> checkpoints/400.sha256.json."""
    return checkpoint.with_name(checkpoint.name + SUFFIX)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_in(directory: Path) -> Iterator[Path]:
    """Yield the files under a directory, sorted."""
    for path in sorted(directory.iterdir()):  # rglob does not work in a bucket
        if path.is_dir():
            yield from files_in(path)
        else:
            yield path


def seal(checkpoint: Path) -> None:
    """Write the manifest of a committed checkpoint, atomically."""
    content = {"files": {str(file.relative_to(checkpoint)): _digest(file) for file in files_in(checkpoint)}}
    path = path_of(checkpoint)
    if is_url(str(path)):  # writing an object in a bucket is atomic
        path.write_text(json.dumps(content, indent=1))
    else:
        atomic.write_json(path, content)


def verify(checkpoint: Path, *, arrays: bool = True, unread: str | None = None) -> bool:
    """Verify a checkpoint against its manifest; return False if the run was killed before it wrote the manifest.

    arrays: also verify the bytes of array files; if False, only check that these files exist. unread: an item of the
    checkpoint to leave out.
    Raises CheckpointError naming the first file that is missing or changed, or an unreadable manifest.
    """
    path = path_of(checkpoint)
    if not path.exists():
        return False
    try:
        files = read_json(path)["files"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the manifest {path} cannot be read ({error}). Use another checkpoint.") from error
    for name, digest in files:
        file = checkpoint / name
        if unread is not None and name.split("/")[0] == unread:
            continue
        if not file.is_file():
            raise CheckpointError(f"the checkpoint's file {file} is missing. Use another checkpoint.")
        if (arrays or file.parent.name != _ARRAY_DATA) and _digest(file) != digest:
            raise CheckpointError(
                f"the checkpoint's file {file} is damaged: its SHA-256 differs from the one in {path}. Use another "
                "checkpoint."
            )
    return True


def remove_orphans(directory: Path) -> None:
    """Remove the manifests of checkpoints that no longer exist."""
    for path in directory.glob(f"*{SUFFIX}*"):
        if not path.with_name(path.name.split(SUFFIX)[0]).exists():
            path.unlink(missing_ok=True)
