"""The files that a name stands for: on this machine's disk, or wherever fsspec reads (`gs://`, `s3://`, `hf://`, …)."""

import contextlib
import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

from bertzoo.core.errors import CorpusError
from bertzoo.core.paths import is_url
from bertzoo.data.corpus.manifest import NAME

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

PLAIN = (".txt", ".text", ".md", ".jsonl")
COMPRESSED = (".gz", ".xz", ".zst")
PARQUET = ".parquet"


@dataclass(frozen=True)
class File:
    """A file, under the name that messages give it."""

    address: str
    system: "AbstractFileSystem | None" = None  # fsspec's; None for this machine's disk

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        """The last part of the address."""
        return PurePosixPath(self.address).name

    @property
    def compression(self) -> str:
        """.gz, .xz, .zst or nothing."""
        suffix = PurePosixPath(self.address).suffix
        return suffix if suffix in COMPRESSED else ""

    @property
    def kind(self) -> str:
        """The suffix that says what the file holds, beneath its compression."""
        return PurePosixPath(self.name.removesuffix(self.compression)).suffix

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The file's bytes, seekable; raises CorpusError where a remote one cannot be read, OSError on this disk."""
        if self.system is None:
            with open(self.address, "rb") as file:
                yield file
            return
        with remote(self.address), self.system.open(self.address, "rb") as file:
            yield cast(BinaryIO, file)


def find(name: str) -> list[File]:
    """The files of a path, directory or glob, local or remote, in the order in which they are read.

    Raises CorpusError when there are none, or when a remote one cannot be listed.
    """
    return _remote_files(name) if is_url(name) else _local_files(name)


def _local_files(name: str) -> list[File]:
    path = Path(name).expanduser()
    if path.is_dir():
        return _inside(name, [File(str(p)) for p in sorted(path.rglob("*")) if p.is_file()])
    if path.is_file():
        return [File(str(path))]
    if glob.has_magic(name):
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True) if Path(match).is_file())
        return _matching(name, [File(str(path)) for path in matches])
    raise CorpusError(f"the source file {name} does not exist")


def _remote_files(name: str) -> list[File]:
    import fsspec

    with remote(name):
        system, path = fsspec.url_to_fs(name)
        found = kind(system, path)
        if found == "directory":
            if system.isfile(f"{path.rstrip('/')}/{NAME}"):
                raise CorpusError(f"{name} is a tokenised corpus and no text: name it alone, to pretrain on it")
            return _inside(name, _remote_sorted(system, system.find(path)))
        if found == "file":
            return _remote_sorted(system, [path])
        if glob.has_magic(path):
            matches = [p for p, info in system.glob(path, detail=True).items() if info["type"] == "file"]
            return _matching(name, _remote_sorted(system, matches))
    raise CorpusError(f"the source file {name} does not exist")


def _remote_sorted(system: "AbstractFileSystem", paths: list[str]) -> list[File]:
    return [File(str(system.unstrip_protocol(path)), system) for path in sorted(paths)]


def _inside(name: str, files: list[File]) -> list[File]:
    text = [file for file in files if is_text(file.address) and file.name[0] != "."]
    if not text:
        raise CorpusError(
            f"the directory {name} holds no file named {', '.join((*PLAIN, PARQUET))} (or the first"
            f" {len(PLAIN)} with {', '.join(COMPRESSED)})"
        )
    return text


def is_text(address: str) -> bool:
    """Whether a file's name says that it holds text."""
    file = File(address)
    return file.kind in PLAIN or file.name.endswith(PARQUET)


def _matching(name: str, files: list[File]) -> list[File]:
    if not files:
        raise CorpusError(f"no file matches the pattern {name}")
    return files


def kind(system: "AbstractFileSystem", path: str) -> str | None:
    """`file`, `directory`, or None where nothing is; raises where a bucket denies, of which fsspec's isfile says no."""
    try:
        return system.info(path)["type"]
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def remote(name: str, done: str = "read") -> Iterator[None]:
    """Whatever a file system raises, and there are as many kinds of errors as file systems, as one sentence."""
    try:
        yield
    except CorpusError:
        raise
    except ImportError as error:
        raise CorpusError(f"{name} needs a package that is not installed: {error}") from error
    except Exception as error:
        said = " ".join(str(error).split()) or "no reason is given"
        raise CorpusError(f"{name} cannot be {done}: {type(error).__name__}: {said[:300]}") from error
