"""Turn a source of text into a tokenised corpus: shards of tokens, a flat index of sentences, and a manifest.

The source is cut into pieces (groups of documents) in a fixed order. A worker turns one piece into at most one shard of
each split, so the result does not depend on the number of workers. A sidecar file marks each finished piece. A repeated
run skips finished pieces, and so resumes a killed run.
"""

import functools
import hashlib
import itertools
import json
import os
import re
import shutil
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path

import numpy as np
from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue] (compiled, without stubs)

from bertzoo.core import atomic
from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.core.remote import RemoteFolder, scratch_directory
from bertzoo.data.corpus import remote, shard
from bertzoo.data.corpus.manifest import (
    FORMAT,
    NAME,
    PIECES,
    SETTINGS,
    Manifest,
    check_same_settings,
    read_sidecar,
    write_manifest,
)
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.corpus.workers import worker_pool
from bertzoo.data.hashes import KeySet, document_keys, is_heldout
from bertzoo.data.settings import MIXTURE, Data, MixtureSource
from bertzoo.data.sources.pieces import Piece, check_sources, cut_pieces, origins, takes
from bertzoo.data.tokenizers import tokenizer
from bertzoo.data.tokenizers.vocabulary import (
    TRAIN_BYTES,
    UNKNOWN_ERROR,
    Tokenizer,
    check_unknown,
    cut,
    vocabulary_file,
)

_LONGEST_LINE = 1 << 22  # characters split into sentences at once; longer lines are cut at spaces
_ENCODE_TOGETHER = 2048  # sentences of a document in one call of the tokenizer, each an array
Progress = Callable[[int, int], None]  # pieces finished, characters of text read
_SAMPLED = {"origins": 32, "documents": 256, "characters": 4096}  # limits of _check_text; characters per document


def write_corpus(
    data: Data, destination: Path | str, *, workers: int = 0, progress: Progress | None = None
) -> Manifest:
    """Write the corpus of `data.source` to a directory (a path) or a URL (a string); raises as `tokenize` does."""
    if isinstance(destination, Path):
        manifest = tokenize(data, destination, workers=workers, progress=progress).manifest
    else:
        manifest = tokenize_to_url(data, destination, workers=workers, progress=progress)
    check_unknown(manifest.unknown_share, str(destination))
    return manifest


def tokenize(
    data: Data,
    destination: Path,
    *,
    workers: int = 0,
    progress: Progress | None = None,
    vocabulary: Tokenizer | None = None,
) -> Corpus:
    """Tokenise `data.source` into a corpus at `destination`; resume it if unfinished, only open it if complete.

    workers: number of processes; 0 for one per core.
    vocabulary: tokenizer to use if data.tokenizer.path is empty; None trains a tokenizer.

    Raises ConfigError if data.source conflicts with data.mixture; CorpusError if the source is unusable, too many
    tokens of its first documents are [UNK], or the destination holds another corpus.
    """
    if data.mixture and data.source != MIXTURE:
        raise ConfigError(
            f"data.source = {data.source!r} excludes data.mixture. Set it to {MIXTURE!r}, or leave the mixture out."
        )
    settings = corpus_settings(data, vocabulary)
    if not (destination / SETTINGS).exists():
        _check_text(data, vocabulary)  # first, so that a failed command leaves the destination empty
    destination.mkdir(parents=True, exist_ok=True)
    path = destination / SETTINGS
    if path.exists():
        check_same_settings(settings, path.read_bytes(), str(destination))
    elif any(entry.name != f"{SETTINGS}.tmp" for entry in destination.iterdir()):  # left by a killed first write
        raise CorpusError(f"{destination} is not empty and holds no tokenised corpus. Choose another destination.")
    else:
        atomic.write_json(path, settings)
    if not (destination / NAME).exists():
        (destination / PIECES).mkdir(exist_ok=True)
        for unfinished in destination.glob("*-[0-9]*.array_record.tmp"):  # a rerun replaces other temporary files
            unfinished.unlink()
        if not (destination / "tokenizer" / "settings.json").exists():
            if vocabulary is None or data.tokenizer.path:
                vocabulary = tokenizer.build(data.tokenizer, lambda: _training_texts(data))
            tokenizer.save(vocabulary, data.tokenizer, destination / "tokenizer")
        count = _tokenize_pieces(data, destination, workers or os.cpu_count() or 1, progress)
        write_manifest(destination, destination / PIECES, count, settings, data.sources)
    shutil.rmtree(destination / PIECES, ignore_errors=True)
    return Corpus.open(destination)


def tokenize_to_url(
    data: Data, url: str, *, workers: int = 0, progress: Progress | None = None, vocabulary: Tokenizer | None = None
) -> Manifest:
    """Tokenise `data.source` into a corpus behind a URL; resume it if unfinished, leave it unchanged if complete.

    The files are written to this machine's cache and stay there until the upload is complete. Raises CorpusError as
    `tokenize` does and, before any work, if the URL cannot be written.
    """
    settings, folder = corpus_settings(data, vocabulary), RemoteFolder.at(url)
    if not folder.has_file(SETTINGS):
        _check_text(data, vocabulary)  # first, so that a failed command leaves the destination empty
    if (manifest := remote.claim(folder, settings)) is not None:
        return manifest
    directory = scratch_directory("tokenising", folder.url, settings)
    with atomic.wait_for(directory):
        corpus = tokenize(data, directory, workers=workers, progress=progress, vocabulary=vocabulary)
        remote.upload(corpus, folder)
        shutil.rmtree(directory)
    return corpus.manifest


def _check_text(data: Data, vocabulary: Tokenizer | None) -> None:
    """Raise CorpusError if the source cannot be read, or too many tokens of its first documents are [UNK]."""
    check_sources(data.sources)
    inherited = vocabulary is not None
    vocabulary = tokenizer.build(data.tokenizer, lambda: iter(())) if data.tokenizer.path else vocabulary
    if vocabulary is None:
        return  # the vocabulary will be trained on the source
    candidates = [origin for source in data.sources for origin in origins(source.source, source.text_field)]
    chosen = candidates[:: -(-len(candidates) // _SAMPLED["origins"])]
    texts = [
        document[: _SAMPLED["characters"]]
        for origin in chosen
        for document in itertools.islice(origin.documents(), _SAMPLED["documents"] // len(chosen))
    ]
    share, subject = vocabulary.unknown_share(texts), f"the first documents of {data.source}"
    if share > UNKNOWN_ERROR:
        check_unknown(share, subject, inherited)


def corpus_settings(data: Data, vocabulary: Tokenizer | None = None) -> dict[str, object]:
    """Return all settings that the bytes of the corpus depend on, as plain data."""
    elsewhere = ("packing", "masking", "mixture")
    settings = {name: value for name, value in asdict(data).items() if name not in elsewhere}
    if data.mixture:
        settings["mixture"] = [asdict(source) for source in data.mixture]
    if data.tokenizer.path:
        path = vocabulary_file(data.tokenizer.path)
        settings["tokenizer"]["path"] = f"{path.name} sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    elif vocabulary is not None:
        settings["tokenizer"]["path"] = tokenizer.label(vocabulary)
    if data.tokenizer.kind == "byte_bpe":
        settings["sentence_spaces"] = True  # earlier versions lost the spaces between sentences
    return {"format": FORMAT, **settings}


def _training_texts(data: Data) -> Iterator[str]:
    """Yield the first documents of the sources, to train a vocabulary on: TRAIN_BYTES in all, equally many of each."""
    for source in data.sources:
        size = 0
        for document in _training_documents(source, data):
            yield document
            size += len(document.encode())
            if size >= TRAIN_BYTES // len(data.sources):
                break


def _training_documents(source: MixtureSource, data: Data) -> Iterator[str]:
    for origin in origins(source.source, source.text_field):
        for document in origin.documents():
            if takes(document, 0, source.shares[0], data.heldout) and not is_heldout(document, data.heldout):
                yield document


def _tokenize_pieces(data: Data, destination: Path, workers: int, progress: Progress | None) -> int:
    """Tokenise the unfinished pieces, about 2 · workers of them in memory at once; return the number of all pieces."""
    count = size = 0
    # One set of keys for each pass over the source, since a further pass repeats documents on purpose.
    key_sets: defaultdict[int, KeySet] = defaultdict(KeySet)
    with worker_pool(workers) as submit:
        pending: deque[Future[None]] = deque()
        for piece in cut_pieces(data.sources, heldout=data.heldout, piece_bytes=data.piece_bytes):
            count += 1
            size += sum(map(len, piece.documents))
            repeated = np.flatnonzero(key_sets[piece.repetition].add(document_keys(piece.documents)))
            if not is_finished(destination, piece):
                pending.append(submit(tokenize_piece, data, destination, piece, frozenset(repeated.tolist())))
            del piece  # its text, while the next one is read
            while len(pending) > 2 * workers:
                pending.popleft().result()
            if progress:
                progress(count - len(pending), size)
        while pending:
            pending.popleft().result()
            if progress:
                progress(count - len(pending), size)
    return count


def tokenize_piece(data: Data, destination: Path, piece: Piece, repeated: frozenset[int]) -> None:
    """Write a piece's shards and indexes, then the JSON file that marks the piece as finished.

    repeated: positions of documents that equal an earlier one of the corpus, to be dropped.
    """
    directory = destination / "tokenizer"
    encoder = _load_tokenizer(directory, tokenizer.fingerprint(directory))
    # Of each document of a split: its tokens, and the number of tokens of each sentence.
    splits: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {split: [] for split in shard.SPLITS}
    dropped = Counter(duplicate=len(repeated), short=0, empty_sentences=0, left_out=piece.left_out)
    for position, document in enumerate(piece.documents):
        if position in repeated:
            continue
        tokens, lengths = _encode(document, data, encoder)
        filled = lengths[lengths > 0]
        dropped["empty_sentences"] += len(lengths) - len(filled)
        if len(tokens) < data.minimum_tokens:
            dropped["short"] += 1
            continue
        splits["heldout" if is_heldout(document, data.heldout) else "train"].append((tokens, filled))
    shards = {
        split: _write_split(documents, split, piece.index, encoder.vocab_size, destination)
        for split, documents in splits.items()
        if documents
    }
    sidecar = {
        "text_sha256": piece.sha256,
        "part": piece.source,
        "documents": sum(map(len, splits.values())),
        "shards": shards,
        "dropped": dict(dropped),
    }
    atomic.write_bytes(destination / PIECES / f"{piece.index:05d}.json", json.dumps(sidecar).encode())


def is_finished(destination: Path, piece: Piece) -> bool:
    """Return whether an earlier run wrote the piece; raises CorpusError if the piece's text has changed since."""
    sidecar = destination / PIECES / f"{piece.index:05d}.json"
    if not sidecar.exists():
        return False
    if read_sidecar(sidecar, destination)["text_sha256"] != piece.sha256:
        raise CorpusError(
            f"the text of {piece.origin} differs from the text that an earlier run tokenised into {destination}. "
            f"Delete {destination} and tokenise again."
        )
    return True


def split_sentences(document: str, data: Data) -> Iterator[tuple[str, bool]]:
    """Yield the sentences of a document, and whether each follows white space, a new line included.

    The document's lines are paragraphs or, if data.sentences = "lines", sentences.
    """
    for match in re.finditer("[^\n]+", document):
        if data.sentences == "lines":
            sentences = (match[0],)
        else:
            sentences = (text for chunk in cut(match[0], _LONGEST_LINE) for text in segment(data.language, chunk))
        spaced = match.start() > 0
        for sentence in sentences:
            yield from ((chunk, spaced or i > 0) for i, chunk in enumerate(cut(sentence.strip())) if chunk)
            spaced = sentence[-1:].isspace()


def _encode(document: str, data: Data, encoder: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of a document's sentences, one after the other, and the number of tokens of each sentence."""
    sentences, dtype = split_sentences(document, data), shard.token_dtype(encoder.vocab_size)
    tokens, lengths = [np.zeros(0, dtype)], [np.zeros(0, np.int32)]
    while batch := list(itertools.islice(sentences, _ENCODE_TOGETHER)):
        encoded = encoder.encode_batch([encoder.after_space(text) if spaced else text for text, spaced in batch])
        tokens.append(np.concatenate(encoded, dtype=dtype, casting="unsafe"))
        lengths.append(np.fromiter(map(len, encoded), np.int32))
    return np.concatenate(tokens), np.concatenate(lengths)


def _write_split(
    documents: list[tuple[np.ndarray, np.ndarray]], split: str, index: int, vocab_size: int, destination: Path
) -> dict[str, object]:
    tokens, sentences = (np.concatenate(arrays) for arrays in zip(*documents, strict=True))
    path = destination / f"{split}-{index:05d}.array_record"
    shard.write_shard(path, tokens)
    steps = range(0, len(tokens), 1 << 20)  # bincount copies to int64
    uses = sum(np.bincount(tokens[i : i + steps.step], minlength=vocab_size) for i in steps)
    sizes = [len(lengths) for _, lengths in documents]
    for name, counts in (("sentences", sentences), ("documents", sizes), ("entries", uses)):
        array = destination / PIECES / f"{index:05d}.{split}.{name}.npy"
        with atomic.replacing(array) as temporary, temporary.open("wb") as file:
            np.save(file, np.asarray(counts, np.int32))
    return {**shard.describe_file(path), "tokens": len(tokens)}


@functools.lru_cache(maxsize=1)  # a worker would load the tokenizer again for each of thousands of pieces
def _load_tokenizer(directory: Path, fingerprint: str) -> Tokenizer:
    """Load the tokenizer in `directory`, or return it from a cache unless the `fingerprint` of its files is new."""
    return tokenizer.load(directory)
