"""Shards of a tokenised corpus: ArrayRecord files whose records are blocks of tokens."""

import errno
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
_OPTIONS = "group_size:1,zstd:1"  # one record per chunk, so that a random read decompresses nothing else
# ArrayRecord reads a list of blocks with a pool of threads, which is slower for short lists. On one core: 35,000
# blocks/s in lists of 50, 65,000 one by one, 85,000 in lists of 300.
_SHORT_LIST = 200
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)

FILE = {"file": str, "bytes": int, "sha256": str}  # a FileRecord in JSON, as a pattern of core/documents
SHARD = {**FILE, "tokens": int}


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """The manifest's entry for one file of the corpus."""

    file: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if Path(self.file).name != self.file:
            raise ValueError(f"{self.file!r} is not the name of a file")

    def matches(self, directory: Path) -> bool:
        """Return whether the directory holds the file with this size and hash."""
        path = directory / self.file
        return path.is_file() and path.stat().st_size == self.bytes and atomic.file_hash(path) == self.sha256

    def check(self, directory: Path, *, contents: bool) -> None:
        """Raise CorpusError unless the directory holds the file with this size and, if `contents` is set, this hash."""
        path = directory / self.file
        if not path.is_file():
            raise CorpusError(f"{path} is missing from the tokenised corpus. Tokenise the source again.")
        if (size := path.stat().st_size) != self.bytes:
            raise CorpusError(
                f"{path} has {size:,} bytes, but the manifest lists {self.bytes:,}. Tokenise the source again."
            )
        if contents and atomic.file_hash(path) != self.sha256:
            raise CorpusError(f"{path} is damaged: its SHA-256 differs from the manifest's. Tokenise the source again.")


@dataclass(frozen=True, kw_only=True)
class ShardRecord(FileRecord):
    """The manifest's entry for a shard, with its number of tokens."""

    tokens: int


def describe_file(path: Path) -> dict[str, str | int]:
    """Return the fields of a FileRecord for an existing file."""
    return asdict(FileRecord(file=path.name, bytes=path.stat().st_size, sha256=atomic.file_hash(path)))


def token_dtype(vocab_size: int) -> np.dtype:
    """Return the little-endian dtype of token ids in shards: uint16 for up to 65,536 ids, else uint32."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def write_shard(path: Path, tokens: np.ndarray) -> None:
    """Write tokens (N,) as a shard that appears complete or not at all; raises OSError on a full disk."""
    try:
        with atomic.replacing(path) as temporary:
            writer = ArrayRecordWriter(str(temporary), _OPTIONS)
            for start in range(0, len(tokens), BLOCK):
                writer.write(tokens[start : start + BLOCK].tobytes())
            writer.close()
    except RuntimeError as error:  # the library has no other exception
        for code in _DISK_ERRORS:
            if os.strerror(code) in str(error):
                raise OSError(code, os.strerror(code), str(path)) from error
        raise


class Blocks:
    """Random access to the blocks of BLOCK tokens in several shards; blocks are numbered over all shards.

    The constructor increases the limit of open files; it raises CorpusError if the hard limit is too low.
    """

    def __init__(self, directory: Path, shards: Sequence[ShardRecord], dtype: np.dtype):
        self._directory, self._shards, self._dtype = directory, shards, dtype
        counts = [-(-shard.tokens // BLOCK) for shard in shards]
        self.first_block = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.first_token = np.concatenate([[0], np.cumsum([shard.tokens for shard in shards])]).astype(np.int64)
        self._readers: dict[int, ArrayRecordReader] = {}
        needed = len(shards) + 512  # some for the rest of a run, such as checkpoints
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if resource.RLIM_INFINITY not in (soft, hard) and hard < needed:
            raise CorpusError(
                f"{directory} needs {needed:,} open files for its shards, but the limit is {hard:,}. Tokenise with a "
                "larger piece_bytes or raise `ulimit -Hn`."
            )
        if soft != resource.RLIM_INFINITY and soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))

    def read(self, blocks: np.ndarray) -> np.ndarray:
        """Return the tokens of ascending, distinct `blocks` (N,) as (N, BLOCK); short last blocks are padded with 0."""
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
            short = len(local) < _SHORT_LIST
            records = [reader.read([block])[0] for block in local] if short else reader.read(local)
        except (RuntimeError, ValueError, IndexError) as error:
            raise CorpusError(f"{path} is damaged and cannot be read ({error}). Tokenise the source again.") from error
        sizes = [min(BLOCK, expected - block * BLOCK) * self._dtype.itemsize for block in local]
        if [len(record) for record in records] != sizes:
            raise CorpusError(f"{path} is damaged: a block has the wrong length. Tokenise the source again.")
        return records
