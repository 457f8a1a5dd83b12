"""Read the documents of a text or JSON-lines file, plain or compressed."""

import contextlib
import gzip
import lzma
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

from bertzoo.core.documents import DocumentError, parse_json
from bertzoo.core.errors import CorpusError
from bertzoo.data.sources.files import SourceFile

LONGEST = 64 << 20  # bytes of a line or document; beyond it the breaks are surely missing
_DAMAGE = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError, EOFError)


def text_documents(file: SourceFile) -> Iterator[str]:
    """Yield documents, which blank lines separate; raises CorpusError naming a line that is too long or not text."""
    document: list[str] = []
    size = start = 0
    for number, line in _lines(file):
        if line:
            start = start if document else number
            document.append(line)
            size += len(line)
            if size > LONGEST:
                raise CorpusError(
                    f"{file} line {start}: a document of {size:,} characters without a blank line is longer than"
                    f" {LONGEST:,}. Put blank lines between documents."
                )
        elif document:
            yield "\n".join(document)
            document, size = [], 0
    if document:
        yield "\n".join(document)


def json_documents(file: SourceFile, text_field: str) -> Iterator[str]:
    """Yield the text field of the JSON object on each line; raises CorpusError naming a line without it."""
    for number, line in _lines(file):
        if not line:
            continue
        try:
            record = parse_json(line, object)
        except DocumentError as error:
            _check_first_line(file, number, None)
            raise CorpusError(f"{file} line {number} is not JSON: {error}. Correct or remove the line.") from error
        _check_first_line(file, number, record)
        text = record.get(text_field) if isinstance(record, dict) else None
        if not isinstance(text, str):
            raise CorpusError(
                f"{file} line {number} has no text in the field {text_field!r}. Set text_field to the field that has "
                "it."
            )
        yield record_document(text, f"{file} line {number}")


def _check_first_line(file: SourceFile, number: int, record: object) -> None:
    """Raise CorpusError if a .json file's first line is not an object; C4's .json files have one on each line."""
    if file.kind == ".json" and number == 1 and not isinstance(record, dict):
        raise CorpusError(f"{file} has no JSON object on its first line. Write one object per line.")


def record_document(text: str, place: str) -> str:
    """Return a record's text with one paragraph per line; raises CorpusError if it has half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{place} holds half a surrogate pair, which is not text: {error.reason}. Remove it."
        ) from error
    return "\n".join(stripped for part in text.splitlines() if (stripped := part.strip()))


def _lines(file: SourceFile) -> Iterator[tuple[int, str]]:
    """Yield the number and the stripped text of each line; a blank line is an empty string."""
    number, carry = 0, b""
    for chunk in _chunks(file):
        if b"\0" in chunk:
            raise CorpusError(
                f"{file} near line {number + 1} holds NUL bytes, so it is not a text file. Convert it, or leave it out."
            )
        *complete, carry = (carry + chunk).split(b"\n")
        for line in complete:
            number += 1
            yield number, _decode(file, number, line)
        if len(carry) > LONGEST:
            raise CorpusError(
                f"{file} line {number + 1} has more than {LONGEST:,} bytes ({len(carry):,} read) without a line "
                "break. Break it into lines."
            )
    if carry:
        yield number + 1, _decode(file, number + 1, carry)


def _decode(file: SourceFile, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{file} line {number} is not UTF-8 text ({error.reason}). Convert the file to UTF-8."
        ) from error


def _chunks(file: SourceFile) -> Iterator[bytes]:
    with file.open() as raw, _decompression_errors(file):
        if not (beginning := raw.read(8)):
            raise CorpusError(f"{file} is empty. Remove it from the source or fill it.")
        file.check_format(beginning)
        raw.seek(0)
        if file.compression == ".zst":
            yield from _zst_chunks(raw)
            return
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(file.compression)
        with opener(raw, "rb") if opener else contextlib.nullcontext(raw) as stream:
            while chunk := stream.read(1 << 20):
                yield chunk


@contextlib.contextmanager
def _decompression_errors(file: SourceFile) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise CorpusError(
            f"{file} is damaged or cut short, so it cannot be decompressed: {error}. Download it again, or leave it "
            "out."
        ) from error


def _zst_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Decompress frame by frame; zstandard's file reader takes a truncated frame for the end of the file."""
    factory = zstandard.ZstdDecompressor()
    frame = None
    while data := file.read(4096):  # bounds memory: 4 bytes may expand to 128 KiB
        while data:
            frame = frame or factory.decompressobj()
            yield frame.decompress(data)
            data = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the last frame has no end")
