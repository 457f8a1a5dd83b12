"""Turns a source of text into a tokenised corpus: shards of tokens, a flat index of sentences, and a manifest.

The source is cut into pieces in a fixed order; a piece is one unit of work and becomes at most one shard of each split,
so the result does not depend on the number of workers. A finished piece leaves a sidecar: a run that was killed goes on
after it.
"""

import hashlib
import os
import shutil
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data.corpus import beam, remote
from bertzoo.data.corpus.corpus import Corpus
from bertzoo.data.corpus.manifest import FORMAT, Manifest, finish, same
from bertzoo.data.corpus.piece import PIECES, is_finished, tokenize_piece
from bertzoo.data.corpus.workers import pool
from bertzoo.data.hashes import Seen, is_heldout, keys
from bertzoo.data.settings import Data
from bertzoo.data.sources import source
from bertzoo.data.sources.mixture import MIXTURE, Part
from bertzoo.data.tokenizers import tokenizer
from bertzoo.data.tokenizers.vocabulary import TRAIN_BYTES, Tokenizer, existing

Progress = Callable[[int, int], None]  # pieces finished, bytes of text read


def tokenize(
    data: Data,
    destination: Path,
    *,
    workers: int = 0,
    progress: Progress | None = None,
    vocabulary: Tokenizer | None = None,
    runner: str = "",
    runner_options: Sequence[str] = (),
) -> Corpus:
    """Writes (or completes, or just opens) the tokenised corpus of `data.source` at `destination`.

    `workers` processes share the work, 0 for one a core. vocabulary: the tokenizer to use where the config names no
    path, in place of one trained on the source. runner: one of Apache Beam's, with its options, which then does the
    work in place of the processes. Raises CorpusError when the source is unusable or the destination
    holds another corpus.
    """
    if data.mixture and data.source != MIXTURE:
        raise ConfigError(
            f"data.source = {data.source!r} and data.mixture both say what is read: set the source to {MIXTURE!r}, or "
            "leave the mixture out"
        )
    pipeline = beam.prepare(runner, runner_options) if runner else None
    if data.tokenizer.path:
        vocabulary = None
    settings = corpus_settings(data, vocabulary)
    if not (destination / "settings.json").exists():
        source.check(data.parts, data.heldout)  # before the place is claimed, which the corrected command will want
    destination.mkdir(parents=True, exist_ok=True)
    _claim(destination, settings)
    if not (destination / "manifest.json").exists():
        (destination / PIECES).mkdir(exist_ok=True)
        for left_behind in destination.rglob("*.tmp"):
            left_behind.unlink()
        _prepare_tokenizer(data, destination, vocabulary)
        if pipeline is not None:
            count = beam.run(data, destination, pipeline)
        else:
            count = _tokenize_pieces(data, destination, workers or os.cpu_count() or 1, progress)
        finish(destination, destination / PIECES, count, settings, data.parts)
    shutil.rmtree(destination / PIECES, ignore_errors=True)
    return Corpus.open(destination)


def tokenize_to(
    data: Data,
    url: str,
    *,
    workers: int = 0,
    progress: Progress | None = None,
    vocabulary: Tokenizer | None = None,
    tell: remote.Tell,
) -> Manifest:
    """Writes (or completes, or just finds) the tokenised corpus of `data.source` behind a URL, by way of this machine.

    What is made here stays until all of it is there. Raises CorpusError as `tokenize` does, and, before anything is
    tokenised, where the URL cannot be written.
    """
    if data.tokenizer.path:
        vocabulary = None
    settings, folder = corpus_settings(data, vocabulary), remote.Folder.at(url)
    if not folder.has(remote.SETTINGS):
        source.check(data.parts, data.heldout)  # before the place is claimed, which the corrected command will want
    if (contents := remote.claim(folder, settings)) is not None:
        return contents
    directory = remote.workplace("tokenising", folder.url, settings)
    with remote.lock(directory):
        corpus = tokenize(data, directory, workers=workers, progress=progress, vocabulary=vocabulary)
        remote.send(corpus, folder, tell)
        shutil.rmtree(directory)
    return corpus.manifest


def corpus_settings(data: Data, vocabulary: Tokenizer | None = None) -> dict[str, object]:
    """Everything that the bytes of the corpus depend on, as plain data."""
    settings = {name: value for name, value in asdict(data).items() if name not in ("packing", "masking", "mixture")}
    if data.mixture:
        settings["mixture"] = [asdict(part) for part in data.mixture]
    if data.tokenizer.path:
        path = existing(data.tokenizer.path)
        settings["tokenizer"]["path"] = f"{path.name} sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    elif vocabulary is not None:
        settings["tokenizer"]["path"] = tokenizer.label(vocabulary)
    return {"format": FORMAT, **settings}


def _claim(destination: Path, settings: dict[str, object]) -> None:
    path = destination / "settings.json"
    if not path.exists():
        if any(destination.iterdir()):
            raise CorpusError(f"{destination} is not empty and holds no tokenised corpus: choose another destination")
        atomic.write_json(path, settings)
        return
    same(settings, path.read_bytes(), str(destination))


def _prepare_tokenizer(data: Data, destination: Path, vocabulary: Tokenizer | None) -> None:
    directory = destination / "tokenizer"
    if not (directory / "settings.json").exists():
        made = vocabulary or tokenizer.build(data.tokenizer, lambda: _training_texts(data))
        tokenizer.save(made, data.tokenizer, directory)


def _training_texts(data: Data) -> Iterator[str]:
    """The beginning of every part of a mixture, so much that all together suffice for a vocabulary."""
    for part in data.parts:
        size = 0
        for document in _chosen(replace(part, weight=min(1.0, part.weight)), data.heldout):
            yield document
            size += len(document.encode())
            if size >= TRAIN_BYTES // len(data.parts):
                break


def _chosen(part: Part, heldout: float) -> Iterator[str]:
    for reading in source.readings([part], heldout):
        for document in reading.origin.documents():
            if reading.takes(document) and not is_heldout(document, heldout):
                yield document


def _tokenize_pieces(data: Data, destination: Path, workers: int, progress: Progress | None) -> int:
    """Hands every unfinished piece to the workers, a bounded number at a time; returns the number of pieces."""
    count = size = 0
    seen: defaultdict[int, Seen] = defaultdict(Seen)  # of each repetition, which is meant to repeat what was before
    with pool(workers) as submit:
        pending: deque[Future[None]] = deque()
        for piece in source.pieces(data.parts, heldout=data.heldout, piece_bytes=data.piece_bytes):
            count += 1
            size += sum(map(len, piece.documents))
            repeated = np.flatnonzero(seen[piece.repetition].add(keys(piece.documents)))
            if not is_finished(destination, piece):
                pending.append(submit(tokenize_piece, data, destination, piece, frozenset(repeated.tolist())))
            while len(pending) > 2 * workers:
                pending.popleft().result()
            if progress:
                progress(count - len(pending), size)
        while pending:
            pending.popleft().result()
            if progress:
                progress(count - len(pending), size)
    return count
