"""Tokenise a piece (consecutive documents of a source) into at most one shard of each split."""

import functools
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue] (compiled, without stubs)

from bertzoo.core import atomic
from bertzoo.core.errors import CorpusError
from bertzoo.data.corpus import manifest, shard
from bertzoo.data.hashes import is_heldout
from bertzoo.data.settings import Data
from bertzoo.data.sources.pieces import Piece
from bertzoo.data.tokenizers import tokenizer
from bertzoo.data.tokenizers.vocabulary import Tokenizer, cut

PIECES = "pieces"  # directory of the finished pieces' sidecars and indexes until the manifest is written
_LONGEST_LINE = 1 << 22  # characters split into sentences at once; longer lines are cut at spaces
_ENCODE_TOGETHER = 2048  # sentences in one call of the tokenizer


@dataclass
class _SplitPart:
    """The documents of a piece that belong to one split."""

    tokens: list[np.ndarray] = field(default_factory=list)  # of each document
    sentences: list[np.ndarray] = field(default_factory=list)  # tokens of each sentence, by document
    documents: list[int] = field(default_factory=list)  # sentences of each document


@dataclass
class _Document:
    """A document whose sentences are being encoded.

    waiting: number of its sentences in the next call of the tokenizer.
    tokens: ids of the encoded sentences, an array for each call.
    lengths: number of tokens of each encoded sentence, an array for each call.
    """

    text: str
    waiting: int = 0
    tokens: list[np.ndarray] = field(default_factory=list)
    lengths: list[np.ndarray] = field(default_factory=list)


def tokenize_piece(data: Data, destination: Path, piece: Piece, repeated: frozenset[int]) -> None:
    """Write a piece's shards and indexes, then the JSON file that marks the piece as finished.

    repeated: positions of documents to drop, because an equal document comes earlier in the corpus.
    """
    directory = destination / "tokenizer"
    encoder = _load_tokenizer(directory, tokenizer.fingerprint(directory))
    parts = {split: _SplitPart() for split in shard.SPLITS}
    dropped = Counter(duplicate=len(repeated), short=0, empty_sentences=0, left_out=piece.left_out)
    distinct = (document for position, document in enumerate(piece.documents) if position not in repeated)
    for document in _encode(distinct, data, encoder):
        tokens, lengths = np.concatenate(document.tokens), np.concatenate(document.lengths)
        filled = lengths[lengths > 0]
        dropped["empty_sentences"] += len(lengths) - len(filled)
        if len(tokens) < data.minimum_tokens:
            dropped["short"] += 1
            continue
        part = parts["heldout" if is_heldout(document.text, data.heldout) else "train"]
        part.tokens.append(tokens)
        part.sentences.append(filled)
        part.documents.append(len(filled))
    shards = {
        split: _write_part(part, split, piece.index, encoder.vocab_size, destination)
        for split, part in parts.items()
        if part.tokens
    }
    sidecar = {
        "text_sha256": piece.sha256,
        "part": piece.part,
        "documents": sum(len(part.documents) for part in parts.values()),
        "shards": shards,
        "dropped": dict(dropped),
    }
    atomic.write_bytes(destination / PIECES / f"{piece.index:05d}.json", json.dumps(sidecar).encode())


def is_finished(destination: Path, piece: Piece) -> bool:
    """Return whether an earlier run wrote the piece; raises CorpusError if the piece's text has changed since."""
    sidecar = destination / PIECES / f"{piece.index:05d}.json"
    if not sidecar.exists():
        return False
    if manifest.read_sidecar(sidecar, destination)["text_sha256"] != piece.sha256:
        raise CorpusError(
            f"the text of {piece.origin} differs from the text that an earlier run tokenised into {destination}. "
            f"Delete {destination} and tokenise again."
        )
    return True


def split_sentences(document: str, data: Data) -> Iterator[str]:
    """Yield the sentences of a document; its lines are paragraphs or, if data.sentences = "lines", sentences."""
    for match in re.finditer("[^\n]+", document):
        if data.sentences == "lines":
            sentences = (match[0],)
        else:
            sentences = (one for part in cut(match[0], _LONGEST_LINE) for one in segment(data.language, part))
        yield from (part for sentence in sentences for part in cut(sentence.strip()) if part)


def _encode(documents: Iterator[str], data: Data, encoder: Tokenizer) -> Iterator[_Document]:
    """Yield each document with its tokens; encodes many sentences in one call, which may span several documents."""
    waiting: list[_Document] = []
    batch: list[str] = []
    for text in documents:
        waiting.append(document := _Document(text))
        for sentence in split_sentences(text, data):
            batch.append(sentence)
            document.waiting += 1
            if len(batch) >= _ENCODE_TOGETHER:
                _encode_together(waiting, batch, encoder)
                yield from waiting[:-1]
                waiting, batch = [document], []
    _encode_together(waiting, batch, encoder)
    yield from waiting


def _encode_together(documents: list[_Document], batch: list[str], encoder: Tokenizer) -> None:
    """Encode the sentences in `batch`, and append their tokens to `documents`.

    batch: the unencoded sentences of the first document, then those of the second, and so on.
    """
    encoded = iter(encoder.encode_batch(batch))
    dtype = shard.token_dtype(encoder.vocab_size)
    for document in documents:
        sentences = list(itertools.islice(encoded, document.waiting))
        document.lengths.append(np.fromiter(map(len, sentences), np.int32))
        document.tokens.append(np.concatenate([np.zeros(0, dtype), *sentences], dtype=dtype, casting="unsafe"))
        document.waiting = 0


def _write_part(part: _SplitPart, split: str, index: int, vocab_size: int, destination: Path) -> dict[str, object]:
    tokens = np.concatenate(part.tokens)
    path = destination / f"{split}-{index:05d}.array_record"
    shard.write_shard(path, tokens)
    steps = range(0, len(tokens), 1 << 20)  # bincount copies to int64
    entries = sum(np.bincount(tokens[i : i + steps.step], minlength=vocab_size) for i in steps)
    sentences = np.concatenate(part.sentences)
    for name, counts in (("sentences", sentences), ("documents", part.documents), ("entries", entries)):
        buffer = io.BytesIO()
        np.save(buffer, np.asarray(counts, np.int32))
        atomic.write_bytes(destination / PIECES / f"{index:05d}.{split}.{name}.npy", buffer.getvalue())
    return {**shard.describe_file(path), "tokens": len(tokens)}


@functools.lru_cache(maxsize=1)  # a worker would load the tokenizer again for each of thousands of groups
def _load_tokenizer(directory: Path, fingerprint: str) -> Tokenizer:
    """Load the tokenizer in `directory`, or return it from a cache.

    fingerprint: hash of the tokenizer's files; if it changes, the files are read again.
    """
    return tokenizer.load(directory)
