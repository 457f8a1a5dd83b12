"""Hash the inputs and outputs of a pipeline's steps, to find out whether a finished step is still valid."""

import glob
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.core.paths import is_url
from bertzoo.data.corpus import manifest
from bertzoo.pipeline import verbs


def output_hash(kind: str, place: str) -> str:
    """Return the SHA-256 of an output: of a model's parameters, a corpus's text or a file's bytes.

    kind: a kind of output in `verbs`, such as MODEL. place: the output's path or URL. Raises UserError if it is
    missing or damaged.
    """
    if kind in verbs.ANY_MODEL:
        return _of_model(place)
    if kind == verbs.CORPUS:
        return manifest.read_manifest(Path(place)).hash
    return _of_path(Path(place))


def input_hash(text: str) -> str:
    """Return the SHA-256 of an input: of a model's parameters, or of all bytes of the files that `text` names.

    If `text` names no file on this machine (such as embedded:python or gs://bucket/text), the hash is that of `text`.
    """
    paths = _matches(text)
    if len(paths) == 1 and paths[0].is_dir():
        try:
            return _of_model(str(paths[0]))
        except UserError:  # a directory of text or tables
            return _of_path(paths[0])
    return _digest([text] if not paths else [_of_path(path) for path in paths])


def stamp(text: str) -> str | None:
    """Return a hash of the names, sizes and modification times of the files that `text` names; None without files."""
    files = [file for path in _matches(text) for file in files_in(path)]
    facts = [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    return _digest(facts) if facts else None


def exists(place: str) -> bool:
    """Return whether a path or URL exists."""
    from bertzoo.core.paths import place as located

    return located(place).exists()


def _of_model(place: str) -> str:
    from bertzoo.conversion import tensors
    from bertzoo.runs import load_model

    return tensors.digest(load_model.read_model(place).params)


def _of_path(path: Path) -> str:
    if not path.exists():
        raise UserError(f"{path} is missing. Run the same pipeline again to make this output.")
    if path.is_dir():
        return _digest([json.dumps(atomic.hashes(path), sort_keys=True)])
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _matches(text: str) -> list[Path]:
    """Return the existing paths that `text` names: one path, or paths and globs between commas; [] for a URL."""
    if is_url(text) or not text:
        return []
    if Path(text).exists():
        return [Path(text)]
    if "," in text:
        return [path for name in text.split(",") for path in _matches(name.strip())]
    return [Path(found) for found in sorted(glob.glob(text, recursive=True))]


def files_in(path: Path) -> list[Path]:
    """Return the files in a directory at any depth, or the file itself."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
