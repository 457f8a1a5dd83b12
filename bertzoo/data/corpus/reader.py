"""Read a tokenised corpus on disk: memory-mapped indexes and random access to its tokens."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from bertzoo.core.errors import CorpusError
from bertzoo.data.corpus.manifest import Manifest, SplitRecord, read_manifest
from bertzoo.data.corpus.shard import BLOCK, Blocks, FileRecord, ShardRecord, token_dtype
from bertzoo.data.tokenizers import tokenizer

Split = Literal["train", "heldout"]


class SplitIndex:
    """Index of the S sentences and D documents of one split, whose tokens form one flat stream.

    record: the split's entry in the manifest.
    sentences: (S,) number of tokens of each sentence.
    documents: (D + 1,) index of each document's first sentence and, last, S.
    """

    def __init__(self, directory: Path, record: SplitRecord):
        self.record = record
        self.sentences = _load_index(directory, record.sentence_index, record.sentences)
        self.documents = _load_index(directory, record.document_index, record.documents + 1)

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """Index of each sentence's first token in the stream and, last, the stream's length: (S + 1,) int64."""
        offsets = np.zeros(len(self.sentences) + 1, np.int64)
        np.cumsum(self.sentences, out=offsets[1:])
        return offsets


class Corpus:
    """A complete tokenised corpus; `address`, a URL or an absolute path, opens it again."""

    def __init__(self, directory: Path, manifest: Manifest, address: str | None = None):
        self.directory = directory
        self.address = address or str(directory.resolve())
        self.manifest = manifest
        self.hash = manifest.hash
        self.tokenizer = tokenizer.load(directory / "tokenizer")
        if tokenizer.fingerprint(directory / "tokenizer") != manifest.tokenizer_sha256:
            raise CorpusError(
                f"{directory / 'tokenizer'} is damaged: its hash differs from the manifest's. Tokenise again."
            )
        self._splits = {split: SplitIndex(directory, record) for split, record in manifest.splits.items()}
        dtype = token_dtype(manifest.vocab_size)
        self._blocks = {split: Blocks(directory, record.shards, dtype) for split, record in manifest.splits.items()}

    @classmethod
    def open(cls, directory: Path, address: str | None = None) -> "Corpus":
        """Open a corpus after checking every file's size and the hashes of the indexes and the tokenizer.

        address: the URL that the directory is a copy of. Raises CorpusError naming a missing or damaged file.
        """
        manifest = read_manifest(directory)
        for record in manifest.files:
            record.check(directory, contents=not isinstance(record, ShardRecord))
        return cls(directory, manifest, address)

    def verify(self) -> None:
        """Check the hashes of all shards and indexes; raises CorpusError naming a damaged file."""
        for record in self.manifest.files:
            record.check(self.directory, contents=True)

    def split(self, split: Split) -> SplitIndex:
        """Return the index of one split."""
        return self._splits[split]

    def tokens(self, split: Split, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return N ranges of the split's token stream, each padded with 0: (N, max(lengths)) int32.

        starts, lengths: (N,), first token and number of tokens of each range. A range must lie within one shard, as
        every document does. Raises CorpusError if a shard cannot be read.
        """
        blocks = self._blocks[split]
        starts, lengths = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
        shards = np.searchsorted(blocks.first_token, starts, side="right") - 1
        ends = blocks.first_token[shards + 1]
        if np.any(crossing := starts + lengths > ends):
            row = int(np.argmax(crossing))
            raise ValueError(
                f"the range of {lengths[row]} tokens from token {starts[row]} crosses the shard's end at {ends[row]}"
            )
        local = starts - blocks.first_token[shards]
        first = blocks.first_block[shards] + local // BLOCK
        further = (local % BLOCK + np.maximum(lengths, 1) - 1) // BLOCK  # blocks of each range after its first
        columns = np.arange(int(further.max(initial=0)) + 1)
        needed = np.unique(first[:, None] + np.minimum(columns, further[:, None]))
        flat = blocks.read(needed).reshape(-1)
        # The blocks of one range are neighbours in `needed`, so its tokens are neighbours in `flat`.
        begin = np.searchsorted(needed, first) * BLOCK + local % BLOCK
        columns = np.arange(int(lengths.max(initial=0)))
        inside = columns < lengths[:, None]
        return np.where(inside, flat[np.where(inside, begin[:, None] + columns, 0)], 0).astype(np.int32)

    def stream(self, split: Split, blocks_at_once: int = 4096) -> Iterator[np.ndarray]:
        """Yield all tokens of a split in order, a few million at a time."""
        blocks = self._blocks[split]
        for shard, (low, high) in enumerate(zip(blocks.first_block[:-1], blocks.first_block[1:], strict=True)):
            remaining = int(np.diff(blocks.first_token)[shard])
            for start in range(low, high, blocks_at_once):
                tokens = blocks.read(np.arange(start, min(start + blocks_at_once, high))).reshape(-1)
                yield tokens[:remaining]
                remaining -= len(tokens)


def _load_index(directory: Path, record: FileRecord, length: int) -> np.ndarray:
    array = np.load(directory / record.file, mmap_mode="r")
    if array.shape != (length,):
        raise CorpusError(
            f"{directory / record.file} is damaged: its shape is {array.shape}, not {(length,)}. Tokenise again."
        )
    return array


def unigram_losses(corpus: Corpus) -> dict[str, float]:
    """Return losses of two unigram models on the held-out tokens but [PAD], [CLS], [SEP] and [MASK], in nats per token.

    "unigram_entropy" is the entropy of the held-out distribution: the least loss that any fixed distribution can have.
    "unigram_cross_entropy" is the loss of the add-one smoothed training distribution on the held-out tokens. Raises
    CorpusError if a shard is damaged.
    """
    train, heldout = _counts(corpus, "train"), _counts(corpus, "heldout")
    share = heldout / heldout.sum()
    occurs = share > 0
    smoothed = (train + 1) / (train + 1).sum()
    return {
        "unigram_entropy": float(-np.sum(share[occurs] * np.log(share[occurs]))),
        "unigram_cross_entropy": float(-np.sum(share[occurs] * np.log(smoothed[occurs]))),
    }


def _counts(corpus: Corpus, split: Split) -> np.ndarray:
    specials = corpus.tokenizer.specials
    counts = np.zeros(corpus.tokenizer.vocab_size, np.int64)
    for tokens in corpus.stream(split):
        counts += np.bincount(tokens, minlength=len(counts))
    ordinary = np.ones(len(counts), bool)
    ordinary[[specials.pad, specials.cls, specials.sep, specials.mask]] = False
    return counts[ordinary]
