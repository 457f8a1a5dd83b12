"""Find the files that a source names: paths, directories and globs on this machine's disk or behind a URL."""

import contextlib
import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

from bertzoo.core.documents import read_json
from bertzoo.core.errors import CorpusError
from bertzoo.core.paths import is_url
from bertzoo.core.remote import entry_type, remote_errors
from bertzoo.data.corpus.manifest import NAME, PIECES, SETTINGS

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

PLAIN = (".txt", ".text", ".md", ".jsonl")
COMPRESSED = (".gz", ".xz", ".zst")
TABLES = (".parquet", ".arrow")
READ = f"{', '.join(PLAIN)} (each also with {', '.join(COMPRESSED)}), {' and '.join(TABLES)}"
# Files of a data set on disk, as Hugging Face's `save_to_disk` writes it, and the split to read.
_STATE, _SPLITS, SPLIT = "state.json", "dataset_dict.json", "train"


@dataclass(frozen=True)
class SourceFile:
    address: str  # path or URL
    system: "AbstractFileSystem | None" = None  # of the URL; None for a file on this machine's disk

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        return PurePosixPath(self.address).name

    @property
    def compression(self) -> str:
        """The compression's suffix: `.gz`, `.xz`, `.zst` or an empty string."""
        suffix = PurePosixPath(self.address).suffix
        return suffix if suffix in COMPRESSED else ""

    @property
    def kind(self) -> str:
        """The suffix of the uncompressed file: `.jsonl` for a.jsonl.gz."""
        return PurePosixPath(self.name.removesuffix(self.compression)).suffix

    @property
    def is_text(self) -> bool:
        """Whether the suffix is that of a text, JSON-lines, Parquet or Arrow file."""
        return self.kind in PLAIN or self.name.endswith(TABLES)

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file as a seekable stream; raises OSError for a local file, CorpusError for a remote one."""
        if self.system is None:
            with open(self.address, "rb") as file:
                yield file
            return
        with remote_errors(self.address), self.system.open(self.address, "rb") as file:
            yield cast(BinaryIO, file)


def find_files(name: str) -> list[SourceFile]:
    """Return the sorted files of a path, directory, glob or URL; raises CorpusError if it cannot list any."""
    files = _remote_files(name) if is_url(name) else _local_files(name)
    if files is None:
        raise CorpusError(f"the source file {name} does not exist. Correct the path in data.source.")
    if not files:
        raise CorpusError(f"no file matches {name}. Correct it in data.source.")
    return files


def _local_files(name: str) -> list[SourceFile] | None:
    """Return the files of a path, directory or glob; None for a path that does not exist."""
    path = Path(name).expanduser()
    if (path / _SPLITS).is_file():
        splits = read_json(path / _SPLITS, {"splits": [str]})["splits"]
        if SPLIT not in splits:
            paths = ", ".join(str(path / split) for split in splits)
            raise CorpusError(f"the data set {name} has no split {SPLIT!r}. Name one of its splits: {paths}.")
        path /= SPLIT
    if (path / _STATE).is_file():
        state = read_json(path / _STATE, {"_data_files": [{"filename": str}], "_indices_data_files?": list | None})
        if state.get("_indices_data_files"):
            raise CorpusError(f"the data set {name} reorders its rows. Save it after `flatten_indices()`.")
        return [SourceFile(str(path / file["filename"])) for file in state["_data_files"]]
    if path.is_dir():
        if (path / NAME).is_file() or ((path / SETTINGS).is_file() and (path / PIECES).is_dir()):
            raise _tokenised(name)
        files = [p for p in sorted(path.rglob("*")) if p.is_file()]
        return _text_files(name, [SourceFile(str(p)) for p in files if not _is_hidden(str(p.relative_to(path)))])
    if path.is_file():
        return [SourceFile(str(path))]
    if not glob.has_magic(name):
        return None
    matches = sorted(map(Path, glob.glob(str(path), recursive=True)))
    return [SourceFile(str(match)) for match in matches if match.is_file()]


def _remote_files(name: str) -> list[SourceFile] | None:
    import fsspec

    with remote_errors(name):
        system, path = fsspec.url_to_fs(name)

        def source_files(paths: list[str]) -> list[SourceFile]:
            return [SourceFile(str(system.unstrip_protocol(path)), system) for path in sorted(paths)]

        kind = entry_type(system, path)
        if kind == "directory":
            if system.isfile(f"{path.rstrip('/')}/{NAME}"):
                raise _tokenised(name)
            files = [file for file in system.find(path) if not _is_hidden(file[len(path) :])]
            return _text_files(name, source_files(files))
        if kind == "file":
            return source_files([path])
        if not glob.has_magic(path):
            return None
        entries = system.glob(path, detail=True).items()
        return source_files([path for path, info in entries if info["type"] == "file"])


def _tokenised(name: str) -> CorpusError:
    return CorpusError(
        f"{name} is a tokenised corpus, not text. Name a source of text here. To pretrain on the corpus, make it the "
        "only data.source."
    )


def _is_hidden(path: str) -> bool:
    """Return whether a file or one of its folders below the source is hidden."""
    return any(name.startswith(".") for name in path.split("/"))


def _text_files(name: str, files: list[SourceFile]) -> list[SourceFile]:
    """Return the files that have a text suffix; raises CorpusError if there are none."""
    text = [file for file in files if file.is_text]
    if not text:
        raise CorpusError(
            f"the directory {name} holds no file with a known suffix: bertzoo reads {READ}. Rename them, or use a glob."
        )
    return text
