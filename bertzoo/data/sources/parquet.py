"""Read the documents of a Parquet file, one per row, in bounded memory."""

from collections.abc import Iterator

from bertzoo.core.errors import CorpusError
from bertzoo.data.sources.files import SourceFile
from bertzoo.data.sources.text import Limits, record_document

_ROWS = 64  # rows decoded at once
_BUFFER = 1 << 20  # bytes read ahead per column; the default loads a whole row group


def documents(file: SourceFile, text_field: str, limits: Limits) -> Iterator[str]:
    """Yield the texts in the column `text_field`.

    Raises CorpusError if pyarrow is not installed, the file is damaged, or a row has no text.
    """
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise CorpusError(
            f"{file} needs pyarrow, which is not installed. Run `pip install -c constraints.txt -e '.[parquet]'` in "
            "the checkout."
        ) from error

    with file.open() as raw:
        try:
            table = pyarrow.parquet.ParquetFile(raw, buffer_size=_BUFFER, pre_buffer=False)
            _check_column(file, table.schema_arrow, text_field)
            row = 0
            for batch in table.iter_batches(_ROWS, columns=[text_field], use_threads=False):
                for text in batch.column(0).to_pylist():
                    row += 1
                    if text is None:
                        raise CorpusError(f"{file} row {row} has no text in the column {text_field!r}. Remove the row.")
                    yield record_document(text, f"{file} row {row}", limits)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise CorpusError(
                f"{file} is damaged or cut short, so it cannot be read as Parquet: {reason}. Download it again, or "
                "leave it out."
            ) from error


def _check_column(file: SourceFile, schema, text_field: str) -> None:
    if text_field not in schema.names:
        raise CorpusError(f"{file} has no column {text_field!r}. Set text_field to one of {', '.join(schema.names)}.")
    if str(schema.field(text_field).type) not in ("string", "large_string", "string_view"):
        raise CorpusError(
            f"{file} has {schema.field(text_field).type} in the column {text_field!r}, not text. Set text_field to a "
            "column of text."
        )
