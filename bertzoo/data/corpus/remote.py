"""A tokenised corpus behind a URL: read through a copy on this machine, which is made once, and written there.

ArrayRecord reads files of the disk alone, and an index is mapped into memory; so every host copies the whole corpus to
a folder of the user's cache, named by the hash in the manifest, and its processes share the copy.
"""

import contextlib
import fcntl
import glob
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from bertzoo.core import atomic, paths
from bertzoo.core.errors import CorpusError
from bertzoo.data.corpus import manifest
from bertzoo.data.corpus.corpus import Corpus
from bertzoo.data.corpus.manifest import NAME, Manifest
from bertzoo.data.corpus.shard import FileRecord, sha256
from bertzoo.data.sources import files
from bertzoo.data.tokenizers import tokenizer

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")
Tell = Callable[[str], None]
SETTINGS = "settings.json"  # what a corpus is of, there from the first moment on
_AT_ONCE = 8  # files under way between here and there
_CHUNK = 8 << 20


@dataclass(frozen=True)
class Folder:
    """A folder behind a URL; its errors are CorpusErrors of one sentence."""

    url: str
    system: "AbstractFileSystem"
    path: str

    @classmethod
    def at(cls, url: str) -> "Folder":
        """The folder that a URL names, which need not exist."""
        import fsspec

        with files.remote(url):
            system, path = fsspec.url_to_fs(url)
            system.invalidate_cache()
        return cls(url.rstrip("/"), system, path.rstrip("/"))

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        with files.remote(f"{self.url}/{name}"):
            return files.kind(self.system, f"{self.path}/{name}") == "file"

    def sizes(self) -> dict[str, int]:
        """What is there, and the bytes of each."""
        with files.remote(self.url):
            try:
                found = self.system.ls(self.path, detail=True)
            except FileNotFoundError:
                return {}
        # A console's "new folder" is an object of the folder's own name.
        sizes = {info["name"].rstrip("/"): info["size"] or 0 for info in found}
        return {name.rsplit("/", 1)[-1]: size for name, size in sizes.items() if name != self.path}

    def read(self, name: str) -> bytes:
        """The contents of a small file."""
        with files.remote(f"{self.url}/{name}"):
            return cast(bytes, self.system.cat_file(f"{self.path}/{name}"))

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file."""
        with files.remote(f"{self.url}/{name}", "written"):
            self.system.pipe_file(f"{self.path}/{name}", data)

    def download(self, name: str, destination: Path) -> None:
        """Copy a file here; it appears complete or not at all."""
        with contextlib.ExitStack() as stack:
            temporary = stack.enter_context(atomic.replacing(destination))
            where = f"{self.url}/{name}"
            with files.remote(where):
                opened = self.system.open(f"{self.path}/{name}", "rb", block_size=_CHUNK)
                source = cast(BinaryIO, stack.enter_context(opened))
            with open(temporary, "wb") as file:
                while True:
                    with files.remote(where):
                        chunk = source.read(_CHUNK)
                    if not chunk:
                        break
                    file.write(chunk)  # outside files.remote: its errors are this disk's

    def upload(self, source: Path, name: str) -> None:
        """Copies a file there, unless it is there in its full size."""
        path, size = f"{self.path}/{name}", source.stat().st_size
        with files.remote(f"{self.url}/{name}", "written"):
            if files.kind(self.system, path) == "file" and self.system.info(path)["size"] == size:
                return
            self.system.put_file(str(source), path)
            if (found := self.system.info(path)["size"]) != size:
                raise CorpusError(f"{self.url}/{name} has {found:,} of {size:,} bytes: run the same command again")


def is_corpus(url: str) -> bool:
    """Whether a tokenised corpus is behind a URL; raises CorpusError where it is unfinished, or cannot be read."""
    if "," in url or glob.has_magic(url) or files.is_text(url):
        return False
    folder = Folder.at(url)
    if folder.has(NAME):
        return True
    if folder.has(SETTINGS):
        raise CorpusError(
            f"{url} is a tokenised corpus without its {NAME}, so unfinished: run the `bertzoo tokenize` that began it "
            "again"
        )
    return False


def read_manifest(url: str) -> Manifest:
    """The manifest of the corpus behind a URL; raises CorpusError where there is none, or where it cannot be read."""
    return manifest.parse(Folder.at(url).read(NAME), f"{url}/{NAME}")


def open_corpus(url: str, tell: Tell) -> Corpus:
    """The corpus behind a URL, read from this machine's copy, which is made or mended where it is not whole.

    Raises CorpusError where the corpus is damaged or cannot be read, OSError where there is no room for the copy.
    """
    folder = Folder.at(url)
    raw = folder.read(NAME)
    contents = manifest.parse(raw, f"{url}/{NAME}")
    directory = paths.cache_folder("corpora") / contents.hash
    with lock(directory):
        if (directory / NAME).is_file():
            try:
                return Corpus.open(directory, url)
            except CorpusError:
                tell(f"{directory} is damaged: what differs from {url} is copied again")
        _copy(folder, contents, directory, tell)
        atomic.write_bytes(directory / NAME, raw)
        return Corpus.open(directory, url)


def _copy(folder: Folder, contents: Manifest, directory: Path, tell: Tell) -> None:
    """Copies what the directory does not have already; a file whose hash is not the manifest's does not stay."""
    records = _records(contents)
    (directory / "tokenizer").mkdir(parents=True, exist_ok=True)
    wanted = [record for record in records if not _is_whole(directory, record)]
    size = sum(record.bytes for record in wanted)
    tell(f"copying {folder.url} to {directory}: {len(wanted):,} files, {size / 1e6:,.1f} MB")
    if (free := shutil.disk_usage(directory).free) < size:
        raise CorpusError(
            f"{directory} has room for {free / 1e9:,.1f} of the {size / 1e9:,.1f} GB of {folder.url}: make room, or "
            "let XDG_CACHE_HOME name a larger disk"
        )

    def one(record: FileRecord) -> None:
        folder.download(record.file, directory / record.file)
        if not _is_whole(directory, record):
            (directory / record.file).unlink()
            raise CorpusError(
                f"{folder.url}/{record.file} is damaged, its sha256 is not the manifest's: delete it and run the "
                "`bertzoo tokenize` that wrote it again"
            )

    _each(one, wanted)
    for name in _tokenizer(contents):
        folder.download(name, directory / name)
    if tokenizer.fingerprint(directory / "tokenizer") != contents.tokenizer_sha256:
        raise CorpusError(
            f"{folder.url}/tokenizer is damaged, its hash is not the manifest's: delete it and run the `bertzoo "
            "tokenize` that wrote it again"
        )


def _records(contents: Manifest) -> list[FileRecord]:
    return [
        record
        for split in contents.splits.values()
        for record in (split.sentence_index, split.document_index, *split.shards)
    ]


def _tokenizer(contents: Manifest) -> list[str]:
    return [f"tokenizer/{name}" for name in tokenizer.files(contents.settings["tokenizer"]["kind"])]


def _is_whole(directory: Path, record: FileRecord) -> bool:
    path = directory / record.file
    return path.is_file() and path.stat().st_size == record.bytes and sha256(path) == record.sha256


def _each(action: Callable[[T], None], items: Sequence[T]) -> None:
    """Some at once; the first that fails is raised, and those not begun are left."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for _ in pool.map(action, items):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def claim(folder: Folder, settings: dict[str, object]) -> Manifest | None:
    """Makes a folder that of a corpus of these settings, or finds that it is; the manifest where nothing is missing.

    Raises CorpusError where something else is there, or where nothing can be written: before hours of work.
    """
    if not folder.has(SETTINGS):
        if folder.sizes():
            raise CorpusError(f"{folder.url} is not empty and holds no tokenised corpus: choose another destination")
        folder.write(SETTINGS, (json.dumps(settings, indent=1) + "\n").encode())
        return None
    manifest.same(settings, folder.read(SETTINGS), folder.url)
    if not folder.has(NAME):
        return None
    contents, sizes = manifest.parse(folder.read(NAME), f"{folder.url}/{NAME}"), folder.sizes()
    whole = all(sizes.get(record.file) == record.bytes for record in _records(contents))
    return contents if whole and all(map(folder.has, _tokenizer(contents))) else None


def send(corpus: Corpus, folder: Folder, tell: Tell) -> None:
    """Copies a corpus into a folder, its manifest last."""
    records = _records(corpus.manifest)
    size = sum(record.bytes for record in records)
    tell(f"uploading to {folder.url}: {len(records):,} files, {size / 1e6:,.1f} MB")
    names = [record.file for record in records] + _tokenizer(corpus.manifest)
    _each(lambda name: folder.upload(corpus.directory / name, name), names)
    folder.write(NAME, (corpus.directory / NAME).read_bytes())


def workplace(kind: str, *described: object) -> Path:
    """Where on this machine something is made that is to be sent to a bucket: the same place when begun again."""
    text = json.dumps(described, sort_keys=True)
    return paths.cache_folder(kind) / hashlib.sha256(text.encode()).hexdigest()[:32]


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Waits until no other process of this machine holds a directory, and holds it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.with_name(directory.name + ".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
