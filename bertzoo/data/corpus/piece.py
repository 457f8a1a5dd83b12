"""Tokenise a piece (consecutive documents of a source) into at most one shard of each split."""

import functools
import io
import json
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
from bertzoo.data.tokenizers.vocabulary import Tokenizer

PIECES = "pieces"  # directory of the finished pieces' sidecars and indexes until the manifest is written
LONGEST_SENTENCE = 1 << 16  # characters; longer ones have no sentence breaks and are cut at white space
_ENCODE_TOGETHER = 2048  # sentences in one call of the tokenizer


@dataclass
class _SplitPart:
    """The documents of a piece that belong to one split."""

    tokens: list[np.ndarray] = field(default_factory=list)
    sentences: list[int] = field(default_factory=list)  # tokens of each sentence
    documents: list[int] = field(default_factory=list)  # sentences of each document


def tokenize_piece(data: Data, destination: Path, piece: Piece, repeated: frozenset[int]) -> None:
    """Write a piece's shards and indexes, then the JSON file that marks the piece as finished.

    repeated: positions of documents to drop, because an equal document comes earlier in the corpus.
    """
    directory = destination / "tokenizer"
    encoder = _load_tokenizer(directory, tokenizer.fingerprint(directory))
    parts = {split: _SplitPart() for split in shard.SPLITS}
    dropped = Counter(duplicate=len(repeated), short=0, empty_sentences=0, left_out=piece.left_out)
    distinct = (document for position, document in enumerate(piece.documents) if position not in repeated)
    for document, encoded in _encode(distinct, data, encoder):
        filled = [ids for ids in encoded if len(ids)]
        dropped["empty_sentences"] += len(encoded) - len(filled)
        if sum(map(len, filled)) < data.minimum_tokens:
            dropped["short"] += 1
            continue
        part = parts["heldout" if is_heldout(document, data.heldout) else "train"]
        part.tokens += filled
        part.sentences += map(len, filled)
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
            f"the text of {piece.origin} changed after {destination} was started. Delete {destination} and tokenise "
            "again."
        )
    return True


def split_sentences(document: str, data: Data) -> list[str]:
    """Return the sentences of a document; its lines are paragraphs or, if data.sentences = "lines", sentences."""
    lines = document.split("\n")
    if data.sentences == "split":
        lines = [sentence for line in lines for sentence in segment(data.language, line)]
    return [part for line in lines for part in _cut(line.strip()) if part]


def _cut(sentence: str) -> Iterator[str]:
    while len(sentence) > LONGEST_SENTENCE:
        space = sentence.rfind(" ", 1, LONGEST_SENTENCE)
        end = space if space > 0 else LONGEST_SENTENCE
        yield sentence[:end]
        sentence = sentence[end:].lstrip()
    yield sentence


def _encode(documents: Iterator[str], data: Data, encoder: Tokenizer) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield each document with the token ids of its sentences; encodes many sentences at once."""
    waiting: list[tuple[str, list[str]]] = []
    count = 0
    for document in documents:
        sentences = split_sentences(document, data)
        waiting.append((document, sentences))
        count += len(sentences)
        if count >= _ENCODE_TOGETHER:
            yield from _encode_together(waiting, encoder)
            waiting, count = [], 0
    yield from _encode_together(waiting, encoder)


def _encode_together(
    waiting: list[tuple[str, list[str]]], encoder: Tokenizer
) -> Iterator[tuple[str, list[np.ndarray]]]:
    flat = [sentence for _, sentences in waiting for sentence in sentences]
    encoded: list[np.ndarray] = []
    for start in range(0, len(flat), _ENCODE_TOGETHER):
        encoded += encoder.encode_batch(flat[start : start + _ENCODE_TOGETHER])
    position = 0
    for document, sentences in waiting:
        yield document, encoded[position : position + len(sentences)]
        position += len(sentences)


def _write_part(part: _SplitPart, split: str, index: int, vocab_size: int, destination: Path) -> dict[str, object]:
    tokens = np.concatenate(part.tokens).astype(shard.token_dtype(vocab_size))
    path = destination / f"{split}-{index:05d}.array_record"
    shard.write_shard(path, tokens)
    entries = np.bincount(tokens, minlength=vocab_size)  # occurrences of each vocabulary entry
    for name, counts in (("sentences", part.sentences), ("documents", part.documents), ("entries", entries)):
        buffer = io.BytesIO()
        np.save(buffer, np.array(counts, np.int32))
        atomic.write_bytes(destination / PIECES / f"{index:05d}.{split}.{name}.npy", buffer.getvalue())
    return {**shard.describe_file(path), "tokens": len(tokens)}


@functools.lru_cache(maxsize=1)
def _load_tokenizer(directory: Path, fingerprint: str) -> Tokenizer:
    """Load a corpus's tokenizer; `fingerprint` is part of the cache key, so that a new vocabulary is read again."""
    return tokenizer.load(directory)
