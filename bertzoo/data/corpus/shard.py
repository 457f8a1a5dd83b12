"""Shards of a tokenised corpus: ArrayRecord files of blocks of tokens, each block one record."""

import errno
import hashlib
import os
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from bertzoo.core import atomic
from bertzoo.core.errors import CorpusError

SPLITS = ("train", "heldout")
BLOCK = 1024  # tokens of one record; the last record of a shard may be shorter
_OPTIONS = "group_size:1,zstd:1"  # one record a chunk: a random read decompresses nothing else
# The library hands a list to a pool of threads, whose waking and spinning costs more than the reading of a short one:
# measured on one core, 35,000 blocks a second for lists of 50, 65,000 one by one, 85,000 for lists of 300.
_FEW = 200
_OTHER_FILES = 512  # what the rest of a run may hold open, checkpoints and all
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """A file of the corpus as its manifest describes it."""

    file: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if Path(self.file).name != self.file:
            raise ValueError(f"{self.file!r} is not the name of a file")

    def check(self, directory: Path, *, contents: bool) -> None:
        """Raises CorpusError naming the file when it is missing or has another size or (if asked) other contents."""
        path = directory / self.file
        if not path.is_file():
            raise CorpusError(f"{path} is missing from the tokenised corpus: tokenise the source again")
        if path.stat().st_size != self.bytes:
            raise CorpusError(
                f"{path} has {path.stat().st_size:,} bytes where the manifest says {self.bytes:,}: it was cut short or"
                " overwritten, tokenise the source again"
            )
        if contents and sha256(path) != self.sha256:
            raise CorpusError(f"{path} is damaged, its sha256 is not the manifest's: tokenise the source again")


@dataclass(frozen=True, kw_only=True)
class ShardRecord(FileRecord):
    """A shard and the number of its tokens."""

    tokens: int


def sha256(path: Path) -> str:
    """The hash of a file's contents."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe(path: Path) -> dict[str, str | int]:
    """A FileRecord of an existing file as plain data."""
    return asdict(FileRecord(file=path.name, bytes=path.stat().st_size, sha256=sha256(path)))


def token_dtype(vocab_size: int) -> np.dtype:
    """Two little-endian bytes a token where they suffice, else four."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def write(path: Path, tokens: np.ndarray) -> None:
    """Write a flat stream of tokens as a shard that appears complete or not at all; a full disk is an OSError."""
    try:
        with atomic.replacing(path) as temporary:
            writer = ArrayRecordWriter(str(temporary), _OPTIONS)
            for start in range(0, len(tokens), BLOCK):
                writer.write(tokens[start : start + BLOCK].tobytes())
            writer.close()
    except RuntimeError as error:  # the library's only exception, with the reason in its text
        for code in _DISK_ERRORS:
            if os.strerror(code) in str(error):
                raise OSError(code, os.strerror(code), str(path)) from error
        raise


def _allow_open_files(needed: int, directory: Path) -> None:
    """Every shard stays open, so that a random read is one system call; raises CorpusError where they are too many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard) and hard < needed:
        raise CorpusError(
            f"{directory} has more shards than the {hard:,} files that may be open ({needed:,} are needed): tokenise"
            " with a larger piece_bytes or raise `ulimit -Hn`"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class Blocks:
    """Random access to the blocks of a list of shards, which are numbered through."""

    def __init__(self, directory: Path, shards: Sequence[ShardRecord], dtype: np.dtype):
        self._directory, self._shards, self._dtype = directory, shards, dtype
        counts = [-(-shard.tokens // BLOCK) for shard in shards]
        self.first_block = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.first_token = np.concatenate([[0], np.cumsum([shard.tokens for shard in shards])]).astype(np.int64)
        self._readers: dict[int, ArrayRecordReader] = {}
        _allow_open_files(len(shards) + _OTHER_FILES, directory)

    def read(self, blocks: np.ndarray) -> np.ndarray:
        """The tokens of sorted, distinct blocks, (len(blocks), BLOCK), zeros behind the end of a shard."""
        result = np.zeros((len(blocks), BLOCK), self._dtype)
        edges = np.searchsorted(blocks, self.first_block)
        for shard in np.flatnonzero(np.diff(edges)):
            low, high = edges[shard], edges[shard + 1]
            local = (blocks[low:high] - self.first_block[shard]).tolist()
            records = self._read_shard(int(shard), local)
            if local[-1] + 1 == self.first_block[shard + 1] - self.first_block[shard]:
                last = np.frombuffer(records.pop(), self._dtype)
                result[high - 1, : len(last)] = last
                high -= 1
            result[low:high] = np.frombuffer(b"".join(records), self._dtype).reshape(-1, BLOCK)
        return result

    def _read_shard(self, shard: int, local: list[int]) -> list[bytes]:
        path = self._directory / self._shards[shard].file
        expected = self._shards[shard].tokens
        try:
            reader = self._readers.get(shard)
            if reader is None:
                reader = self._readers[shard] = ArrayRecordReader(str(path), "readahead_buffer_size:0")
            few = len(local) < _FEW
            records = [reader.read([block])[0] for block in local] if few else reader.read(local)
        except (RuntimeError, ValueError, IndexError) as error:
            raise CorpusError(f"{path} is damaged and cannot be read ({error}): tokenise the source again") from error
        sizes = [min(BLOCK, expected - block * BLOCK) * self._dtype.itemsize for block in local]
        if [len(record) for record in records] != sizes:
            raise CorpusError(f"{path} is damaged, a block has the wrong length: tokenise the source again")
        return records
