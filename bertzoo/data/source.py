"""A source of raw text is one string: paths, directories, globs, or the prose inside the Python installation.

Text files hold one paragraph (or sentence) a line and a blank line between documents; `.jsonl` files hold one document
a line. Either may be compressed (.gz, .xz, .zst). Everything streams: memory is bounded by one piece.
"""

import glob
import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from bertzoo.data import embedded
from bertzoo.errors import CorpusError

LONGEST = 64 << 20  # bytes of one line or one document: beyond this the line or document breaks are surely missing
_PLAIN = (".txt", ".text", ".md", ".jsonl")
_COMPRESSED = (".gz", ".xz", ".zst")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Consecutive documents of one file: the unit of work of tokenisation."""

    index: int
    origin: str
    documents: tuple[str, ...]  # one paragraph (or sentence) a line

    @property
    def sha256(self) -> str:
        """The hash of the piece's text."""
        return hashlib.sha256("\0".join(self.documents).encode()).hexdigest()


def pieces(source: str, *, text_field: str, piece_bytes: int) -> Iterator[Piece]:
    """Cuts a source into pieces of about `piece_bytes` of text, in a fixed order and never across files.

    Raises CorpusError, naming the file and line, for input that is missing, empty or not text.
    """
    index = 0
    for origin, documents in _origins(source, text_field):
        batch: list[str] = []
        size = 0
        for document in documents:
            batch.append(document)
            size += len(document.encode())
            if size >= piece_bytes:
                yield Piece(index=index, origin=origin, documents=tuple(batch))
                index, batch, size = index + 1, [], 0
        if batch:
            yield Piece(index=index, origin=origin, documents=tuple(batch))
            index += 1


def files(source: str) -> list[Path]:
    """The files that a source names, in the order in which they are read; raises CorpusError when there are none."""
    names = [part.strip() for part in source.split(",")]
    if not all(names):
        raise CorpusError(
            f"the source {source!r} holds an empty name: give paths, directories or globs separated by commas"
        )
    found = [path for name in names for path in _expand(name)]
    seen: set[Path] = set()
    for path in found:
        if path in seen:
            raise CorpusError(f"the source {source!r} names {path} more than once: name every file once")
        seen.add(path)
    return found


def _expand(name: str) -> list[Path]:
    path = Path(name).expanduser()
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.is_file() and _is_text_name(p))
        if not inside:
            raise CorpusError(
                f"the directory {name} holds no file named {', '.join(_PLAIN)} (or these with {', '.join(_COMPRESSED)})"
            )
        return inside
    if path.is_file():
        return [path]
    if glob.has_magic(name):
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True) if Path(match).is_file())
        if not matches:
            raise CorpusError(f"no file matches the pattern {name}")
        return matches
    raise CorpusError(f"the source file {name} does not exist")


def _is_text_name(path: Path) -> bool:
    stem = path.with_suffix("") if path.suffix in _COMPRESSED else path
    return stem.suffix in _PLAIN and not path.name.startswith(".")


def _origins(source: str, text_field: str) -> Iterator[tuple[str, Iterator[str]]]:
    if source == embedded.SOURCE:
        yield source, iter(embedded.documents())
        return
    if source.startswith("embedded:"):
        raise CorpusError(f"the source {source!r} is unknown: the embedded source is called {embedded.SOURCE!r}")
    for path in files(source):
        stem = path.with_suffix("") if path.suffix in _COMPRESSED else path
        if stem.suffix == ".json":
            raise CorpusError(f"{path} is a JSON file: give one object a line in a .jsonl file")
        documents = _json_documents(path, text_field) if stem.suffix == ".jsonl" else _text_documents(path)
        yield path.name, _not_empty(path, documents)


def _not_empty(path: Path, documents: Iterator[str]) -> Iterator[str]:
    count = 0
    for document in documents:
        count += 1
        yield document
    if not count:
        raise CorpusError(f"{path} holds no text: remove it from the source or fill it")


def _text_documents(path: Path) -> Iterator[str]:
    document: list[str] = []
    size = start = 0
    for number, line in _lines(path):
        if line:
            start = start if document else number
            document.append(line)
            size += len(line)
            if size > LONGEST:
                raise CorpusError(
                    f"{path} line {start}: a document of {size:,} characters without a blank line is longer than"
                    f" {LONGEST:,}: put blank lines between documents"
                )
        elif document:
            yield "\n".join(document)
            document, size = [], 0
    if document:
        yield "\n".join(document)


def _json_documents(path: Path, text_field: str) -> Iterator[str]:
    for number, line in _lines(path):
        if not line:
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise CorpusError(f"{path} line {number} is not JSON: {error.msg} at column {error.colno}") from error
        except RecursionError as error:
            raise CorpusError(f"{path} line {number} is nested too deeply to be read: give flat records") from error
        text = record.get(text_field) if isinstance(record, dict) else None
        if not isinstance(text, str):
            raise CorpusError(
                f"{path} line {number} has no text in the field {text_field!r}: name the field in text_field"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"{path} line {number} holds half a surrogate pair, which is not text: {error.reason}"
            ) from error
        yield "\n".join(stripped for part in text.splitlines() if (stripped := part.strip()))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The stripped lines of a file with their numbers; an empty string for a blank line."""
    number, carry = 0, b""
    for chunk in _chunks(path):
        if b"\0" in chunk:
            raise CorpusError(f"{path} near line {number + 1} holds NUL bytes: it is not a text file")
        *complete, carry = (carry + chunk).split(b"\n")
        for line in complete:
            number += 1
            yield number, _decode(path, number, line)
        if len(carry) > LONGEST:
            raise CorpusError(
                f"{path} line {number + 1} has more than {LONGEST:,} bytes ({len(carry):,} read) without a line break:"
                " break it into lines"
            )
    if carry:
        yield number + 1, _decode(path, number + 1, carry)


def _decode(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path} line {number} is not UTF-8 text ({error.reason}): convert the file to UTF-8"
        ) from error


def _chunks(path: Path) -> Iterator[bytes]:
    if not path.stat().st_size:
        raise CorpusError(f"{path} is empty: remove it from the source or fill it")
    try:
        if path.suffix == ".zst":
            yield from _zst_chunks(path)
            return
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
        with opener(path, "rb") as file:
            while chunk := file.read(1 << 20):
                yield chunk
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError, EOFError) as error:
        raise CorpusError(f"{path} cannot be decompressed, it is damaged or cut short: {error}") from error


def _zst_chunks(path: Path) -> Iterator[bytes]:
    """Decompresses frame by frame; zstandard's own file reader takes a truncated frame for the end of the file."""
    factory = zstandard.ZstdDecompressor()
    frame = None
    with open(path, "rb") as file:
        while data := file.read(4096):  # small, because one block of 4 bytes may hold 128 KiB
            while data:
                frame = frame or factory.decompressobj()
                yield frame.decompress(data)
                data = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the last frame has no end")
