"""Check and convert paths, URLs and names of models."""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import cast

from bertzoo.core.errors import UserError

Location = Path | str  # a path on this machine, or a URL
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_PLACEHOLDERS = (".gitkeep", ".gitignore", ".DS_Store")  # files that do not count as contents of a directory
_FLATTENED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a URL after pathlib has removed a slash


def is_url(name: str) -> bool:
    """Return whether a name is a URL, such as gs://bucket/text."""
    return _URL.match(name) is not None


def on_disk(name: Path | str, subject: str, advice: str) -> Path:
    """Return a name as a path; raises UserError for a URL, because Path would turn gs://… into a directory `gs:`.

    subject: the error's words before the name, such as "the model". advice: last sentence of the error.
    """
    if _FLATTENED.match(str(name)):
        raise UserError(f"{subject} {name} is a URL that bertzoo cannot use here. {advice}")
    return Path(name)


def location(name: Location, subject: str, advice: str) -> Location:
    """Return a URL without trailing slashes, or a name of a file or directory as a Path.

    subject, advice: texts of the error, as in `on_disk`. Raises UserError for a URL that Path has changed, such as
    gs:/bucket.
    """
    return str(name).rstrip("/") if is_url(str(name)) else on_disk(name, subject, advice)


def resolve_name(name: Location) -> str:
    """Return an absolute path without links, or a URL without trailing slashes."""
    return str(name).rstrip("/") if is_url(str(name)) else str(Path(name).resolve())


def run_directory(name: Path | str) -> Path:
    """Return the path of a run's directory; raises UserError for a URL."""
    return on_disk(name, "the run directory", "Name a local or mounted directory, or gs://… for a bucket.")


def check_vacant(directory: str, names: Iterable[str], marks: Sequence[str], leftovers: Collection[str] = ()) -> None:
    """Raise UserError if the directory for a new run is neither empty nor the directory of a run.

    directory: the directory's name in the error.
    names: names of the directory's entries.
    marks: names of files that only a run has; every run has at least one of them.
    leftovers: names of files to ignore, because a run leaves them if it is killed before it writes a mark.
    """
    names = sorted(names)
    foreign = [name for name in names if name not in (*leftovers, *_PLACEHOLDERS) and not name.endswith(".tmp")]
    if foreign and not any(mark in names for mark in marks):
        more = f" and {len(foreign) - 1:,} more" if len(foreign) > 1 else ""
        raise UserError(
            f"--run_dir={directory} is not a run: it holds {foreign[0]}{more}, but no {marks[0]}. Name another."
        )


def to_path(name: Path | str) -> Path:
    """Return a name as an absolute path, or a URL as an `etils.epath.Path`, which reads and writes remote files."""
    if not is_url(str(name)):
        return Path(name).absolute()
    from etils import epath
    from fsspec.config import conf

    for protocol in ("gs", "gcs"):  # TensorStore writes without fsspec, whose cached listings would be stale
        conf.setdefault(protocol, {})["use_listings_cache"] = False
    return cast(Path, epath.Path(name))


def missing_model(name: Path | str) -> str:
    """Return the error message for a missing model."""
    if Path(name).is_file():
        return f"{name} is a file, not the directory of a model. Name the run or the model that it comes from."
    return (
        f"{name} is not a directory, and models are not downloaded. Name a run or the directory of a model; "
        "`hf download NAME --local-dir DIR` copies one from the Hugging Face Hub."
    )


def cache_folder(kind: str) -> Path:
    """Return the path of a folder in the user's cache for files of a `kind`, such as "corpora"; creates nothing."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertzoo" / kind
