"""Cut sources into pieces, lists of documents. A source names files, data sets or the Python installation's prose.

Text files hold one paragraph (or sentence) per line and a blank line between documents; `.jsonl` files hold one
document per line, `.parquet` and `.arrow` files one per row. Text and `.jsonl` files may be compressed (.gz, .xz,
.zst). Everything streams: memory is bounded by one piece.
"""

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bertzoo.core.errors import CorpusError
from bertzoo.data.hashes import is_chosen, is_heldout
from bertzoo.data.settings import MixtureSource
from bertzoo.data.sources import embedded
from bertzoo.data.sources.files import TABLES, SourceFile, find_files
from bertzoo.data.sources.text import TFDS, json_documents, ranges, table_documents, text_documents

_FEWEST_DOCUMENTS = 1 << 16  # that close a piece of few bytes


@dataclass(frozen=True)
class Origin:
    """A file, a range of a data set's examples, or Python's documentation, with a function that reads its documents."""

    name: str
    documents: Callable[[], Iterator[str]]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Consecutive documents of one Origin; one worker tokenises the whole group."""

    index: int  # number of the piece in the corpus
    origin: str  # name of the Origin, for messages
    source: int  # index of the source in the mixture
    repetition: int  # number of earlier passes over the source
    left_out: int  # documents that the mixture's weight excluded since the previous piece; 0 in repetitions
    documents: tuple[str, ...]  # texts with one paragraph (or sentence) per line

    @property
    def sha256(self) -> str:
        """SHA-256 of the piece's documents, in hexadecimal."""
        digest = hashlib.sha256()
        for index, document in enumerate(self.documents):
            digest.update((b"\0" if index else b"") + document.encode())
        return digest.hexdigest()


def takes(document: str, repetition: int, share: float, heldout: float) -> bool:
    """Return whether the pass over a source after `repetition` earlier passes reads a document, based on its hash.

    share: share of the documents to read. heldout: share of held-out documents, which only the first pass reads.
    """
    if repetition and is_heldout(document, heldout):
        return False
    return share >= 1 or is_chosen(document, share)


def check_sources(sources: Sequence[MixtureSource]) -> None:
    """Raise CorpusError if one of `sources` is missing or empty, or its first document cannot be read."""
    origin_lists = [origins(source.source, source.text_field) for source in sources]
    for files in origin_lists:
        next(files[0].documents(), None)


def cut_pieces(sources: Sequence[MixtureSource], *, heldout: float, piece_bytes: int) -> Iterator[Piece]:
    """Cut `sources` into pieces of about `piece_bytes` bytes of text, in a fixed order.

    A piece never spans two files. Raises CorpusError, naming the file and line, for input that is missing, empty or not
    text.
    """
    origin_lists = [origins(source.source, source.text_field) for source in sources]
    most = max(_FEWEST_DOCUMENTS, piece_bytes // 16)  # every document costs memory, however short
    index = 0
    for number, source in enumerate(sources):
        for (repetition, share), origin in itertools.product(enumerate(source.shares), origin_lists[number]):
            fields: dict[str, Any] = {"origin": origin.name, "source": number, "repetition": repetition}
            batch: list[str] = []
            size = left_out = 0
            for document in origin.documents():
                if not takes(document, repetition, share, heldout):
                    left_out += not repetition
                    continue
                batch.append(document)
                size += len(document.encode())
                if size >= piece_bytes or len(batch) >= most:
                    yield Piece(index=index, left_out=left_out, documents=tuple(batch), **fields)
                    index, batch, size, left_out = index + 1, [], 0, 0
            if batch or left_out:
                yield Piece(index=index, left_out=left_out, documents=tuple(batch), **fields)
                index += 1


def origins(source: str, text_field: str) -> list[Origin]:
    """Return the Origins of the comma-separated names in `source`, in their order.

    Raises CorpusError if a name is empty, names no text, or repeats a file or a data set.
    """
    names = [name.strip() for name in source.split(",")]
    if not all(names):
        raise CorpusError(
            f"the source {source!r} holds an empty name. Name paths, directories or globs separated by commas."
        )
    by_address: dict[str, Origin] = {}
    for name in names:
        for address, origin in _named_origins(name, text_field):
            if address in by_address:
                raise CorpusError(f"the source {source!r} names {address} more than once. Name every file once.")
            by_address[address] = origin
    return list(by_address.values())


def _named_origins(name: str, text_field: str) -> Iterator[tuple[str, Origin]]:
    """Yield the address and the Origin of each file, or range of a data set, that `name` stands for."""
    if name == embedded.SOURCE:
        yield name, Origin(name, lambda: iter(embedded.documents()))
    elif name.startswith("embedded:"):
        raise CorpusError(f"the source {name!r} is unknown. Use {embedded.SOURCE!r}, the only embedded source.")
    elif name.startswith(TFDS):
        for address, documents in ranges(name.removeprefix(TFDS), text_field):
            yield address, Origin(address, documents)
    else:
        for file in find_files(name):
            yield str(file), Origin(file.name, functools.partial(_file_documents, file, text_field))


def _file_documents(file: SourceFile, text_field: str) -> Iterator[str]:
    if file.name.endswith(TABLES):
        documents = table_documents(file, text_field)
    elif file.kind in (".jsonl", ".json"):
        documents = json_documents(file, text_field)
    else:
        documents = text_documents(file)
    empty = True
    for document in documents:
        empty = False
        yield document
    if empty:
        raise CorpusError(f"{file} holds no text. Remove it from the source or fill it.")
