"""A manifest beside every checkpoint: its step, its run and the SHA-256 of its files.

It reveals a flipped bit, which orbax restores without an error, and a checkpoint copied over another checkpoint.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertzoo.core import atomic
from bertzoo.core.documents import read_json
from bertzoo.core.errors import CheckpointError
from bertzoo.core.paths import is_url

SUFFIX = ".sha256.json"
RUN = "run-id"  # file beside the checkpoints with the identity that their manifests share
_MANIFEST = {"files": {str: str}, "step?": int, "run?": str}  # earlier versions wrote neither step nor run
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
    files = {str(file.relative_to(checkpoint)): _digest(file) for file in files_in(checkpoint)}
    content = {"step": int(checkpoint.name), "run": _run_id(checkpoint.parent), "files": files}
    _write(path_of(checkpoint), json.dumps(content, indent=1))


def _run_id(directory: Path) -> str:
    """Return the id of the run whose checkpoints are in a directory, from the file RUN.

    If the file is missing, writes it first, with the id from a manifest or, if no manifest has an id, with a new one.
    """
    file = directory / RUN
    if not file.is_file():
        manifests = (_read(path) for path in sorted(directory.glob(f"*{SUFFIX}")))
        _write(file, next((content["run"] for content in manifests if "run" in content), uuid.uuid4().hex))
    return file.read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    if is_url(str(path)):  # writing an object in a bucket is atomic
        path.write_text(text)
    else:
        atomic.write_bytes(path, text.encode())


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, _MANIFEST)
    except ValueError as error:
        raise CheckpointError(f"the manifest {path} cannot be read ({error}). Use another checkpoint.") from error


def verify(checkpoint: Path, *, arrays: bool = True, unread: str | None = None) -> bool:
    """Verify a checkpoint against its manifest; return False if the run was killed before it wrote the manifest.

    arrays: also verify the bytes of array files; if False, only check that these files exist.
    unread: a top-level folder of the checkpoint, such as "training", whose files are not verified.

    Raises CheckpointError naming a file that is missing or changed, or a manifest that is unreadable or belongs to
    another step or run.
    """
    path = path_of(checkpoint)
    if not path.exists():
        return False
    content, run = _read(path), checkpoint.with_name(RUN)
    if str(content.get("step", checkpoint.name)) != checkpoint.name:
        raise another_step(checkpoint, content["step"])
    if "run" in content and run.is_file() and (other := run.read_bytes().decode(errors="replace")) != content["run"]:
        raise CheckpointError(
            f"{checkpoint} was copied from another run: its manifest has the run id {content['run']}, but the id in "
            f"{run} is {other[:40]}. Use another checkpoint."
        )
    for name, digest in content["files"].items():
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


def another_step(checkpoint: Path, step: int) -> CheckpointError:
    """Return the error for a checkpoint whose `step` is not the step in its name."""
    return CheckpointError(
        f"{checkpoint} was copied from another checkpoint: it holds step {step}. Use another checkpoint."
    )


def remove_orphans(directory: Path) -> None:
    """Remove the manifests of checkpoints that no longer exist."""
    for path in directory.glob(f"*{SUFFIX}*"):
        if not path.with_name(path.name.split(SUFFIX)[0]).exists():
            path.unlink(missing_ok=True)
