"""Read the documents of a source: a text, JSON-lines, Parquet or Arrow file, or a range of a data set's examples.

Text and JSON-lines files may be compressed. A data set is one that TensorFlow Datasets has prepared; its examples are
read by index and without TensorFlow.
"""

import functools
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from bertzoo.core.documents import DocumentError, parse_json
from bertzoo.core.errors import CorpusError, needs_extra
from bertzoo.data.sources.files import SourceFile
from bertzoo.data.tokenizers.vocabulary import paragraphs

LONGEST = 16 << 20  # characters of a document, and bytes of a line or of blank lines in a row
_DECODER = 192 << 20  # bytes that an .xz file may require; `xz -9` requires 65 MB
# Blank lines in one match, so that a compressed gigabyte of them takes seconds.
_LINE = re.compile(rb"\s*\n|[^\n]+\n")
_ROWS = 64  # rows decoded at once
_BUFFER = 1 << 20  # bytes read ahead per column; the default loads a whole row group


def text_documents(file: SourceFile) -> Iterator[str]:
    """Yield documents, which blank lines separate; raises CorpusError naming a line that is too long or not UTF-8."""
    document, start, size = io.StringIO(), 0, 0
    for number, line in _lines(file):
        if line:
            start = start if size else number
            size += document.write(f"\n{line}" if size else line)
            if size > LONGEST:
                raise CorpusError(
                    f"{file} line {start}: the document that starts here has at least {size:,} characters, more than "
                    f"{LONGEST:,}. Put blank lines between documents."
                )
        elif size:
            yield document.getvalue()
            document, size = io.StringIO(), 0
    if size:
        yield document.getvalue()


def json_documents(file: SourceFile, text_field: str) -> Iterator[str]:
    """Yield the text field of the JSON object on each line; raises CorpusError naming a line without this field."""
    for number, line in _lines(file):
        if not line:
            continue
        record = damage = None
        try:
            record = parse_json(line, object)
        except DocumentError as error:
            damage = error
        # Every line of C4's .json files is an object. Other .json files often hold one value over several lines.
        if file.kind == ".json" and number == 1 and not isinstance(record, dict):
            raise CorpusError(f"{file} has no JSON object on its first line. Write one object per line.")
        if damage:
            raise CorpusError(
                f"{file} line {number} cannot be read as JSON: {damage}. Correct or remove the line."
            ) from damage
        text = record.get(text_field) if isinstance(record, dict) else None
        if not isinstance(text, str):
            raise CorpusError(
                f"{file} line {number} has no text in the field {text_field!r}. Set text_field to the field of text."
            )
        yield record_document(text, f"{file} line {number}")


def record_document(text: str, location: str) -> str:
    """Return a record's text, one paragraph per line, or raise CorpusError.

    A text may be too long, or have half a surrogate pair. location: the record's file and number, for the error.
    """
    if len(text) > LONGEST:
        raise CorpusError(f"{location} holds a document of {len(text):,} characters, more than {LONGEST:,}. Split it.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{location} holds half a surrogate pair, which is not text: {error.reason}. Remove this half."
        ) from error
    document = io.StringIO()
    for paragraph in paragraphs(text):
        if stripped := paragraph.strip():
            document.write(f"\n{stripped}" if document.tell() else stripped)
    return document.getvalue()


def _lines(file: SourceFile) -> Iterator[tuple[int, str]]:
    """Yield (line number, stripped text) for each line; an empty text stands for one or more blank lines."""
    number = blank = 0
    unfinished: list[bytes] = []
    for chunk in _chunks(file):
        if b"\0" in chunk:
            raise CorpusError(
                f"{file} near line {number + 1} holds NUL bytes, so is no text. Convert it to UTF-8, or leave it out."
            )
        end = chunk.rfind(b"\n") + 1
        complete = b"".join([*unfinished, chunk[:end]]) if end else b""
        unfinished = [chunk[end:]] if end else [*unfinished, chunk]
        for match in _LINE.finditer(complete):
            text = "" if (line := match[0]).isspace() else _decode(file, number + 1, line)
            blank = 0 if text else blank + len(line)
            _check_line(file, number + 1, max(len(line), blank))
            number += line.count(b"\n")
            yield number, text
        _check_line(file, number + 1, sum(map(len, unfinished)))
    if line := b"".join(unfinished):
        yield number + 1, _decode(file, number + 1, line)


def _check_line(file: SourceFile, number: int, size: int) -> None:
    if size > LONGEST:
        raise CorpusError(
            f"{file} line {number}: this line, or the run of blank lines around it, has at least {size:,} bytes, more "
            f"than {LONGEST:,}. Break up the line, or delete the blank lines."
        )


def _decode(file: SourceFile, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{file} line {number} is not UTF-8 text ({error.reason}). Convert the file to UTF-8."
        ) from error


def _chunks(file: SourceFile) -> Iterator[bytes]:
    """Yield the decompressed contents of a file; raises CorpusError if it is empty or cannot be decompressed."""
    damage: tuple[type[Exception], ...] = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)
    with file.open() as raw:
        if not raw.read(1):
            raise CorpusError(f"{file} is empty. Remove it from the source or fill it.")
        raw.seek(0)
        if file.compression == ".zst":
            with needs_extra(str(file), "zstd"):
                import zstandard
            damage += (zstandard.ZstdError,)
            chunks = _frames(raw, zstandard.ZstdDecompressor().decompressobj)
        elif file.compression == ".xz":
            chunks = _frames(raw, functools.partial(lzma.LZMADecompressor, memlimit=_DECODER))
        else:
            stream = gzip.GzipFile(fileobj=raw, mode="rb") if file.compression else raw
            chunks = iter(lambda: stream.read(1 << 20), b"")
        try:
            yield from chunks
        except damage as error:
            raise CorpusError(
                f"{file} cannot be decompressed ({error}): it is damaged, cut short, or needs too much memory. "
                "Download or compress it again, or leave it out."
            ) from error


def _frames(file: BinaryIO, decompressor: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the decompressed frames of a file; raises EOFError for a truncated frame.

    zstandard's own file reader would take a truncated frame for the end of the file.
    """
    frame = None
    while data := file.read(1024):  # bounds memory: 4 bytes of .zst may expand to 128 KiB
        while data := data if frame else data.lstrip(b"\0"):  # .xz files may have zeros between frames
            frame = frame or decompressor()
            yield frame.decompress(data)
            data = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the last frame has no end")


def table_documents(file: SourceFile, text_field: str) -> Iterator[str]:
    """Yield the texts in the column `text_field`.

    Raises CorpusError if the file is damaged or a row has no text, and UserError without pyarrow.
    """
    with needs_extra(str(file), "parquet"):
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.ipc  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]

    with file.open() as raw:
        try:
            if file.name.endswith(".arrow"):
                footer = raw.read(6) == b"ARROW1"  # lists the batches; a stream has none
                raw.seek(0)
                table = pyarrow.ipc.open_file(raw) if footer else pyarrow.ipc.open_stream(raw)
                whole = map(table.get_batch, range(table.num_record_batches)) if footer else table
                # The file's writer chose the size of its batches.
                chunks = (chunk.slice(start, _ROWS) for chunk in whole for start in range(0, len(chunk), _ROWS))
                schema, batches = table.schema, chunks
            else:
                table = pyarrow.parquet.ParquetFile(raw, buffer_size=_BUFFER, pre_buffer=False)
                schema, batches = table.schema_arrow, table.iter_batches(_ROWS, columns=[text_field], use_threads=False)
            if text_field not in schema.names:
                raise CorpusError(
                    f"{file} has no column {text_field!r}. Set text_field to one of {', '.join(schema.names)}."
                )
            if (kind := str(schema.field(text_field).type)) not in ("string", "large_string", "string_view"):
                raise CorpusError(f"{file} has {kind} in the column {text_field!r}, not text. Set text_field.")
            row = 0
            for batch in batches:
                for text in batch.column(text_field).to_pylist():
                    row += 1
                    if text is None:
                        raise CorpusError(f"{file} row {row} has no text in the column {text_field!r}. Remove the row.")
                    yield record_document(text, f"{file} row {row}")
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise CorpusError(
                f"{file} is no whole {'Arrow' if file.name.endswith('.arrow') else 'Parquet'} file: {reason}. "
                "Download it again, or leave it out."
            ) from error


# Data sets of TensorFlow Datasets: the prefix of their names, the split to read, and the examples per range.
TFDS, SPLIT, EXAMPLES = "tfds:", "train", 1 << 17
# TensorFlow Datasets would look up a namespace (huggingface:glue) on the network, and options may hold URLs.
_NAME = re.compile(r"\w+(/[\w.-]+)?(:\d[\d.*]*)?")


def ranges(dataset: str, text_field: str) -> Iterator[tuple[str, Callable[[], Iterator[str]]]]:
    """Yield name and reader of each range of EXAMPLES examples in the training split of `NAME[/CONFIG][:VERSION]`.

    Raises CorpusError as `open_split` does, or if the split is empty.
    """
    count = len(open_split(dataset))
    if not count:
        raise CorpusError(f"{TFDS}{dataset} has no examples in the split {SPLIT}. Name a data set with examples.")
    for start in range(0, count, EXAMPLES):
        stop = min(start + EXAMPLES, count)
        yield f"{TFDS}{dataset}[{start}:{stop}]", functools.partial(_documents, dataset, text_field, start, stop)


def _documents(dataset: str, text_field: str, start: int, stop: int) -> Iterator[str]:
    """Yield the texts of the feature `text_field`; raises CorpusError naming an example without text."""
    examples = open_split(dataset)
    for index in range(start, stop):
        name, fields = f"{TFDS}{dataset}[{index}]", examples[index]
        text = fields.get(text_field)
        if isinstance(text, bytes):
            try:
                text = text.decode()
            except UnicodeDecodeError as error:
                raise CorpusError(f"{name} is not UTF-8 text: {error.reason}. Use another text_field.") from error
        if not isinstance(text, str):
            raise CorpusError(f"{name} has no text in {text_field!r}. Set text_field to one of {', '.join(fields)}.")
        yield record_document(text, name)


def open_split(dataset: str) -> Any:
    """Return the examples of the training split, as a sequence; contacts no network.

    Raises CorpusError if the name is wrong or the data set is not prepared on this machine, and UserError without
    TensorFlow Datasets.
    """
    if not _NAME.fullmatch(dataset):
        raise CorpusError(f"{TFDS}{dataset} is not NAME, NAME/CONFIG or NAME/CONFIG:VERSION. Correct the name.")
    with needs_extra(f"{TFDS}{dataset}", "tfds"):
        import tensorflow_datasets  # pyright: ignore[reportMissingImports]
    try:
        return tensorflow_datasets.data_source(dataset, split=SPLIT, download=False)
    except Exception as error:  # the library raises many types
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise CorpusError(
            f"{TFDS}{dataset} cannot be opened ({reason}). Prepare it with `tfds build {dataset}"
            " --file_format=array_record`, and set TFDS_DATA_DIR if it is not in ~/tensorflow_datasets."
        ) from error
