"""Read tables: TSV, CSV, JSONL, Parquet, and files of one word a line (CoNLL)."""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bertzoo.core.documents import DocumentError, fitting, parse_json
from bertzoo.core.errors import UserError, needs_extra
from bertzoo.core.paths import on_disk

FEW, MANY = "fewer columns than the header", "more columns than the header"
PARQUET = ".parquet"
WORDS = (".conll", ".bio", ".iob", ".txt")
SUFFIXES = (".tsv", ".csv", ".jsonl", PARQUET, *WORDS)
_LONGEST = 1 << 30  # characters of a cell; the csv module's default is 131,072
T = TypeVar("T")


class TableRow(NamedTuple):
    """A row's number, from 1, and its cells. For a malformed row, `cells` is None and `why` is the reason."""

    number: int
    cells: Sequence[Any] | None
    why: str = ""


@dataclass(frozen=True)
class DataTable:
    """A table whose `rows(columns)` are read on demand.

    names: {column: class names}. An integer in such a column is an index into its class names.
    """

    name: str
    unit: str  # word for a row in messages, such as line
    columns: tuple[str, ...]
    rows: Callable[[Sequence[str]], Iterator[TableRow]]
    names: dict[str, tuple[str, ...]]

    def select(self, columns: Sequence[str]) -> Iterator[TableRow]:
        """Yield the rows with the cells of these columns; raises UserError for an unknown column."""
        for column in columns:
            if column not in self.columns:
                raise UserError(f"{self.name} has no column {column!r}. Its columns are {', '.join(self.columns)}.")
        return self.rows(columns)

    def valid_rows(self, columns: Sequence[str]) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield (place, cells of the columns) of every row; raises UserError for a malformed row."""
        for row in self.select(columns):
            if row.cells is None:
                raise UserError(f"{self.place(row.number)} has {row.why}. Correct or remove the row.")
            yield self.place(row.number), row.cells

    def place(self, number: int) -> str:
        """Return the name of row `number` for messages."""
        return f"{self.name} {self.unit} {number}"


def read_table(name: Path | str, *, header: bool = True) -> DataTable:
    """Open a file by its suffix; raises UserError if it is missing, empty or not text.

    Quotation marks have no meaning in a .tsv. header: whether the first line of a .tsv or .csv names the columns; if
    not, the columns are called 0, 1, and so on.
    """
    path = _file(name, "table")
    if path.suffix == PARQUET:
        return _parquet(path)
    if path.suffix == ".jsonl":
        return _jsonl(path)
    if path.suffix in WORDS:
        return _words(path)
    if path.suffix not in (".tsv", ".csv"):
        raise UserError(f"{path} has an unknown suffix. Use one of {', '.join(SUFFIXES)}.")
    return _delimited(path, _tab_separated if path.suffix == ".tsv" else _comma_separated, header)


def read_lines(name: Path | str) -> list[str]:
    """Return the lines of a text file without their ends; raises UserError if it is missing or not text."""
    return [line for _, line in _lines(_file(name, "text file"))]


def _file(name: Path | str, kind: str) -> Path:
    path = on_disk(name, f"the {kind}", "Copy the file to this machine and name the copy.")
    if path.is_dir():
        raise UserError(f"{path} is a directory, not a {kind}. Name a file in it.")
    if not path.is_file():
        raise UserError(f"the file {path} does not exist. Correct the name.")
    return path


def _first(path: Path, records: Iterator[T]) -> T:
    for record in records:
        return record
    raise UserError(f"{path} is empty. Add rows to the file, or name another file.")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line without its end); only "\\n" and "\\r\\n" end a line."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path} line {number} is not UTF-8 text ({error.reason}). Convert the file to UTF-8."
                ) from error
            if "\0" in text:
                raise UserError(
                    f"{path} line {number} holds a NUL byte, so the file is not text. Convert the file to UTF-8."
                )
            yield number, text.removesuffix("\n").removesuffix("\r")


def _tab_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split("\t")) for number, line in _lines(path))


def _comma_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line, cells) of each record.

    Quoted cells may span lines. The record of an empty line has no cells.
    """
    limit = csv.field_size_limit(_LONGEST)
    records, start = [], 1
    reader = csv.reader((line + "\n" for _, line in _lines(path)), strict=True)
    try:
        for cells in reader:
            records.append((start, cells))
            start = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path} line {start} cannot be read as CSV: {error}. Correct the line.") from error
    finally:
        csv.field_size_limit(limit)
    return iter(records)


def _delimited(path: Path, parse: Callable[[Path], Iterator[tuple[int, list[str]]]], header: bool) -> DataTable:
    _, cells = _first(path, (record for record in parse(path) if record[1]))
    columns = tuple(cells) if header else tuple(map(str, range(len(cells))))
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        raise UserError(f"{path} has the column {twice!r} twice. Rename one of them.")

    def rows(names: Sequence[str]) -> Iterator[TableRow]:
        places, width = [columns.index(name) for name in names], len(columns)
        records = parse(path)
        if header:
            next(record for record in records if record[1])
        for number, cells in records:
            if not cells and width > 1:  # an empty line of a .csv; with one column it is an empty cell
                continue
            cells = cells or [""]
            if len(cells) == width:
                yield TableRow(number, [cells[place] for place in places])
            else:
                yield TableRow(number, None, FEW if len(cells) < width else MANY)

    return DataTable(str(path), "line", columns, rows, {})


def _jsonl(path: Path) -> DataTable:
    def records() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in _lines(path):
            if not line.strip():
                continue
            try:
                record = parse_json(line, object)
            except DocumentError as error:
                raise UserError(f"{path} line {number} cannot be read as JSON: {error}. Correct the line.") from error
            if not isinstance(record, dict):
                raise UserError(f"{path} line {number} is not a JSON object. Write one object per line.")
            yield number, record

    _first(path, records())  # raises for an empty file
    columns = tuple(dict.fromkeys(name for _, record in records() for name in record))

    def rows(columns: Sequence[str]) -> Iterator[TableRow]:
        for number, record in records():
            yield TableRow(number, [record.get(name) for name in columns])

    return DataTable(str(path), "line", columns, rows, {})


def _parquet(path: Path) -> DataTable:
    with needs_extra(str(path), "parquet"):
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    damaged = (pyarrow.ArrowException, OSError, UnicodeDecodeError)

    def failure(error: Exception) -> UserError:
        return UserError(
            f"{path} is damaged or cut short, so it cannot be read as Parquet: {' '.join(str(error).split())}. "
            "Download the file again."
        )

    try:
        schema = pyarrow.parquet.read_schema(path)
    except damaged as error:
        raise failure(error) from error

    def rows(columns: Sequence[str]) -> Iterator[TableRow]:
        try:
            number = 0
            with pyarrow.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(1024, columns=list(columns), use_threads=False):
                    for cells in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                        number += 1
                        yield TableRow(number, cells)
        except damaged as error:
            raise failure(error) from error

    return DataTable(str(path), "row", tuple(schema.names), rows, _class_names(path, schema.metadata))


def _class_names(path: Path, metadata: dict[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """Return class names by column, from the metadata that Hugging Face's `datasets` adds for columns of integers."""
    try:
        document = parse_json((metadata or {}).get(b"huggingface", b"{}"), {"info?": {"features?": dict}})
        features = document.get("info", {}).get("features", {})
        classes = {name: feature.get("feature", feature) for name, feature in features.items() if type(feature) is dict}
        named = {name: feature for name, feature in classes.items() if type(feature) is dict and "names" in feature}
        fitting(named, {str: {"names": [str]}})
    except DocumentError as error:
        raise UserError(f"{path} has damaged Hugging Face metadata: {error}. Save the file again.") from error
    return {name: tuple(feature["names"]) for name, feature in named.items()}


def _words(path: Path) -> DataTable:
    """Open a file of one word a line. A row is a sentence, up to an empty line; its cells are lists, one item per word.

    A row's number is the number of its first line. Lines beginning with -DOCSTART- are skipped. "-1" also names the
    last column.
    """

    def sentences() -> Iterator[tuple[int, list[list[str]]]]:
        words: list[list[str]] = []
        start = 0
        for number, line in _lines(path):
            if line.strip() and not line.startswith("-DOCSTART-"):
                start = start if words else number
                words.append(line.split("\t") if "\t" in line else line.split())
            elif words:
                yield start, words
                words = []
        if words:
            yield start, words

    width = len(_first(path, sentences())[1][0])

    def rows(columns: Sequence[str]) -> Iterator[TableRow]:
        places = [int(name) for name in columns]
        for start, words in sentences():
            odd = next((i for i, cells in enumerate(words) if len(cells) != width), None)
            if odd is None:
                yield TableRow(start, [[cells[place] for cells in words] for place in places])
            else:
                yield TableRow(start + odd, None, f"{len(words[odd])} columns where the first line has {width}")

    return DataTable(str(path), "line", (*map(str, range(width)), "-1"), rows, {})
