"""A tokenised corpus on disk: memory-mapped indexes and random access to its tokens."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from bertzoo.core.errors import CorpusError
from bertzoo.data.corpus import manifest
from bertzoo.data.corpus.manifest import Manifest, SplitRecord
from bertzoo.data.corpus.shard import BLOCK, Blocks, FileRecord, token_dtype
from bertzoo.data.tokenizers import tokenizer

Split = Literal["train", "heldout"]


class SplitIndex:
    """The documents and sentences of one split, in the address space of its flat stream of tokens."""

    def __init__(self, directory: Path, record: SplitRecord):
        self.record = record
        self.sentences = _map(directory, record.sentence_index, record.sentences)  # (S,) tokens of each sentence
        self.documents = _map(
            directory, record.document_index, record.documents + 1
        )  # (D + 1,) first sentence of each document

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """(S + 1,) int64: the address of every sentence's first token, and the end."""
        offsets = np.zeros(len(self.sentences) + 1, np.int64)
        np.cumsum(self.sentences, out=offsets[1:])
        return offsets


class Corpus:
    """A complete tokenised corpus; made by `Corpus.open`. Its `address` is where it is found again from anywhere."""

    def __init__(self, directory: Path, contents: Manifest, address: str | None = None):
        self.directory = directory
        self.address = address or str(directory.resolve())
        self.manifest = contents
        self.hash = contents.hash
        self.tokenizer = tokenizer.load(directory / "tokenizer")
        if tokenizer.fingerprint(directory / "tokenizer") != contents.tokenizer_sha256:
            raise CorpusError(
                f"{directory / 'tokenizer'} is damaged, its hash is not the manifest's: tokenise the source again"
            )
        self._splits = {split: SplitIndex(directory, record) for split, record in contents.splits.items()}
        dtype = token_dtype(contents.vocab_size)
        self._blocks = {split: Blocks(directory, record.shards, dtype) for split, record in contents.splits.items()}

    @classmethod
    def open(cls, directory: Path, address: str | None = None) -> "Corpus":
        """Opens a corpus after checking every file's size and the hashes of the indexes and the tokenizer.

        address: the URL that the directory is a copy of.
        Raises CorpusError naming the file that is missing or damaged.
        """
        contents = manifest.read(directory)
        for record in contents.splits.values():
            for shard in record.shards:
                shard.check(directory, contents=False)
            for index in (record.sentence_index, record.document_index):
                index.check(directory, contents=True)
        return cls(directory, contents, address)

    def verify(self) -> None:
        """Checks the hash of every shard; raises CorpusError naming the damaged one."""
        for record in self.manifest.splits.values():
            for shard in record.shards:
                shard.check(self.directory, contents=True)

    def split(self, split: Split) -> SplitIndex:
        """The index of one split."""
        return self._splits[split]

    def tokens(self, split: Split, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """(N, max(lengths)) int32: the tokens at the addresses [start, start + length), zeros behind them.

        Each range must lie within one shard, as every document does. Raises CorpusError when a shard cannot be read.
        """
        blocks = self._blocks[split]
        starts, lengths = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
        shards = np.searchsorted(blocks.first_token, starts, side="right") - 1
        if np.any(starts + lengths > blocks.first_token[shards + 1]):
            raise ValueError("a range of tokens crosses the end of a shard")
        local = starts - blocks.first_token[shards]
        first = blocks.first_block[shards] + local // BLOCK
        spanned = int(np.max((local % BLOCK + np.maximum(lengths, 1) - 1) // BLOCK, initial=0)) + 1
        last = first + (local % BLOCK + np.maximum(lengths, 1) - 1) // BLOCK
        wanted = np.unique(np.minimum(first[:, None] + np.arange(spanned), last[:, None]))
        flat = blocks.read(wanted).reshape(-1)
        # The blocks of one range are neighbours in `wanted`, so its tokens are neighbours in `flat`.
        begin = np.searchsorted(wanted, first) * BLOCK + local % BLOCK
        columns = np.arange(int(lengths.max(initial=0)))
        inside = columns < lengths[:, None]
        return np.where(inside, flat[np.where(inside, begin[:, None] + columns, 0)], 0).astype(np.int32)

    def stream(self, split: Split, blocks_at_once: int = 4096) -> Iterator[np.ndarray]:
        """All tokens of a split in order, a few million at a time."""
        blocks = self._blocks[split]
        for shard, (low, high) in enumerate(zip(blocks.first_block[:-1], blocks.first_block[1:], strict=True)):
            left = int(np.diff(blocks.first_token)[shard])
            for start in range(low, high, blocks_at_once):
                tokens = blocks.read(np.arange(start, min(start + blocks_at_once, high))).reshape(-1)
                yield tokens[:left]
                left -= len(tokens)


def _map(directory: Path, record: FileRecord, length: int) -> np.ndarray:
    array = np.load(directory / record.file, mmap_mode="r")
    if array.shape != (length,):
        raise CorpusError(
            f"{directory / record.file} is damaged, it has shape {array.shape}: tokenise the source again"
        )
    return array
