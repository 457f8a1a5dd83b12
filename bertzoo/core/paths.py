"""Where a name points: to this machine's disk, or, as a URL, elsewhere."""

import os
import re
from pathlib import Path
from typing import cast

from bertzoo.core.errors import UserError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_INSIDE = re.compile(r"checkpoints|iterations|seed-\d+")  # of a run's directory, where a model is
_FLATTENED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # what a Path makes of a URL


def is_url(name: str) -> bool:
    """Whether a name is a URL, such as gs://bucket/text."""
    return _URL.match(name) is not None


def on_disk(name: Path | str, what: str, instead: str) -> Path:
    """The path that a name is; raises UserError for a URL, of which a Path would silently make a directory `gs:`.

    what: the name's role; instead: what to do about a URL.
    """
    if _FLATTENED.match(str(name)):
        raise UserError(f"{what} {name} is a URL where only a path on disk will do: {instead}")
    return Path(name)


def run_directory(name: Path | str) -> Path:
    """The path of a run's directory; raises UserError for a URL."""
    return on_disk(name, "the run directory", "name a directory, a mounted one perhaps, or gs://…")


def place(name: Path | str) -> Path:
    """The absolute path that a name is, or one that reads and writes what is behind a URL as if it were a path."""
    if not is_url(str(name)):
        return Path(name).absolute()
    from etils import epath
    from fsspec.config import conf

    for protocol in ("gs", "gcs"):  # TensorStore writes past fsspec, whose remembered listings would be old ones
        conf.setdefault(protocol, {})["use_listings_cache"] = False
    return cast(Path, epath.Path(name))


def named(name: Path | str) -> str:
    """Which model a path is of, without where on this machine: RUN, RUN/checkpoints/10, RUN/seed-0/model."""
    parts = Path(name).parts
    inside = next((i for i, part in enumerate(parts) if i and _INSIDE.fullmatch(part)), len(parts))
    return "/".join(parts[inside - 1 :])


def cache(kind: str) -> Path:
    """The folder of the user's cache for things of a kind; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertzoo" / kind
