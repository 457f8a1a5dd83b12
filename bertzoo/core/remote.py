"""Read and write files behind URLs through fsspec: gs://, s3://, hf://, http://, memory:// and others."""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from bertzoo.core import atomic, paths
from bertzoo.core.errors import CorpusError, UserError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")
_CHUNK = 8 << 20  # bytes of one read
_TRANSFERS = 8  # files copied at once
# Fields of a listed file that change with its contents; their names depend on the file system.
_VERSIONS = ("etag", "ETag", "generation", "blob_id", "mtime", "LastModified", "last_modified", "created")


@contextlib.contextmanager
def remote_errors(url: str, action: str = "read") -> Iterator[None]:
    """Re-raise a file system's exceptions as a CorpusError with the message "URL cannot be ACTION: …".

    action: past participle in the message, such as "written".
    """
    try:
        yield
    except UserError:
        raise
    except ImportError as error:
        raise CorpusError(f"{url} needs a package that is not installed: {error}. Install it.") from error
    except Exception as error:  # every file system has its own exceptions
        reason = " ".join(str(error).split()) or "no reason given"
        raise CorpusError(
            f"{url} cannot be {action}: {type(error).__name__}: {reason[:300]}. Check the address and your access."
        ) from error


def entry_type(system: "AbstractFileSystem", path: str) -> str | None:
    """Return "file", "directory", or None if `path` is missing; unlike fsspec's isfile, raises if access is denied."""
    try:
        return system.info(path)["type"]
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class RemoteFolder:
    """A folder behind a URL. Every method raises CorpusError, naming the file, if the file system fails."""

    url: str
    system: "AbstractFileSystem"
    path: str

    @classmethod
    def at(cls, url: str) -> "RemoteFolder":
        """Return the folder at a URL; the folder need not exist."""
        import fsspec

        with remote_errors(url):
            system, path = fsspec.url_to_fs(url)
            system.invalidate_cache()
        return cls(url.rstrip("/"), system, path.rstrip("/"))

    def has_file(self, name: str) -> bool:
        with remote_errors(f"{self.url}/{name}"):
            return entry_type(self.system, f"{self.path}/{name}") == "file"

    def file_sizes(self) -> dict[str, int]:
        """Return the size in bytes of every entry, by name; empty if the folder does not exist."""
        with remote_errors(self.url):
            try:
                entries = self.system.ls(self.path, detail=True)
            except FileNotFoundError:
                return {}
        # A cloud console creates an empty folder as an object with the folder's own name.
        sizes = {entry["name"].rstrip("/"): entry["size"] or 0 for entry in entries}
        return {name.rsplit("/", 1)[-1]: size for name, size in sizes.items() if name != self.path}

    def list_tree(self) -> dict[str, tuple[int, str]]:
        """Return the size in bytes and the version of every file below the folder, by relative path.

        The version is a string that changes with the file's contents, or "" if the file system has no versions. The
        result is empty if the folder does not exist.
        """
        with remote_errors(self.url):
            self.system.invalidate_cache()
            try:
                entries = cast(dict[str, Any], self.system.find(self.path, detail=True))
            except FileNotFoundError:
                return {}
        tree = {}
        for name, entry in entries.items():
            path = name.removeprefix(f"{self.path}/")
            if path != name and not {"", ".", ".."} & set(path.split("/")):  # a bucket may hold a key such as a/../b
                version = next((str(entry[key]) for key in _VERSIONS if entry.get(key)), "")
                tree[path] = entry["size"] or 0, version
        return tree

    def read_bytes(self, name: str) -> bytes:
        """Return the contents of a small file."""
        with remote_errors(f"{self.url}/{name}"):
            return cast(bytes, self.system.cat_file(f"{self.path}/{name}"))

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a small file."""
        with remote_errors(f"{self.url}/{name}", "written"):
            self.system.pipe_file(f"{self.path}/{name}", data)

    def download(self, name: str, destination: Path) -> None:
        """Copy a file to `destination` on this machine, where it appears complete or not at all."""
        url = f"{self.url}/{name}"
        with atomic.replacing(destination) as temporary, temporary.open("wb") as file:
            with remote_errors(url):
                source = cast(BinaryIO, self.system.open(f"{self.path}/{name}", "rb", block_size=_CHUNK))
            read = remote_errors(url)(source.read)  # errors of `file.write` come from the local disk
            with source:
                while chunk := read(_CHUNK):
                    file.write(chunk)

    def upload(self, source: Path, name: str) -> None:
        """Copy a local file into the folder as `name`, unless the folder has a file of this name and size."""
        path, size = f"{self.path}/{name}", source.stat().st_size
        with remote_errors(f"{self.url}/{name}", "written"):
            if entry_type(self.system, path) == "file" and self.system.info(path)["size"] == size:
                return
            self.system.put_file(str(source), path)
            if (arrived := self.system.info(path)["size"]) != size:
                raise CorpusError(f"{self.url}/{name} has {arrived:,} of {size:,} bytes. Run the same command again.")


def check_room(directory: Path, size: int, url: str) -> None:
    """Raise CorpusError unless the disk of the existing `directory` has room for `size` bytes from `url`."""
    if (free := shutil.disk_usage(directory).free) < size:
        raise CorpusError(
            f"{directory} has room for {free / 1e9:,.1f} of the {size / 1e9:,.1f} GB of {url}. Make room, or set "
            "XDG_CACHE_HOME to a directory on a larger disk."
        )


def transfer_files(copy: Callable[[T], None], items: Iterable[T]) -> None:
    """Call `copy` on the items in parallel threads; if a call raises, start no more calls and raise its exception."""
    with ThreadPoolExecutor(_TRANSFERS) as pool:
        try:
            for _ in pool.map(copy, items):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def mirror(folder: RemoteFolder, sizes: Mapping[str, int], home: Path) -> None:
    """Download the files `sizes` ({relative path: bytes}) of a remote folder into the directory `home`.

    Raises CorpusError if a file cannot be read or arrives with another size.
    """

    def download(path: str) -> None:
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        folder.download(path, home / path)
        if (arrived := (home / path).stat().st_size) != sizes[path]:
            raise CorpusError(
                f"{folder.url}/{path} arrived with {arrived:,} of its {sizes[path]:,} bytes. Run it again."
            )

    transfer_files(download, sorted(sizes))


def scratch_directory(kind: str, *identity: object) -> Path:
    """Return a path in the user's cache for a directory of files to upload later; equal arguments give equal paths."""
    text = json.dumps(identity, sort_keys=True)
    return paths.cache_folder(kind) / hashlib.sha256(text.encode()).hexdigest()[:32]
