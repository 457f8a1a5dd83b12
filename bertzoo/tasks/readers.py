"""Read tables (TSV, CSV, JSONL, Parquet, or CoNLL's files with a word per line) and the examples to predict.

The examples come from a table, from lines of text or from the command line.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bertzoo.core.documents import DocumentError, fitting, parse_json
from bertzoo.core.errors import UserError, needs_extra
from bertzoo.core.paths import on_disk
from bertzoo.tasks import fields
from bertzoo.tasks.task import Example

FEW, MANY = "fewer columns than the header", "more columns than the header"
PARQUET = ".parquet"
WORDS = (".conll", ".bio", ".iob", ".txt")
SUFFIXES = (".tsv", ".csv", ".jsonl", PARQUET, *WORDS)
_LONGEST = 1 << 30  # characters of a cell; the csv module's default is 131,072
T = TypeVar("T")


@dataclass(frozen=True)
class DataTable:
    """A table. rows: the number of each row and its cells, as many as `columns` or else malformed.

    names: {column: class names}. An integer in such a column is an index into its class names.
    """

    name: str
    unit: str  # word for a row in messages, such as line
    columns: tuple[str, ...]
    rows: Sequence[tuple[int, Sequence[Any]]]
    names: dict[str, tuple[str, ...]]

    def select(self, columns: Sequence[str]) -> Iterator[tuple[str, Sequence[Any] | None, str]]:
        """Yield (location, cells of the columns, "") of every row; raises UserError for an unknown column.

        A malformed row yields (location, None, reason).
        """
        for column in columns:
            if column not in self.columns:
                raise UserError(f"{self.name} has no column {column!r}. Its columns are {', '.join(self.columns)}.")
        indices, width = [self.columns.index(column) for column in columns], len(self.columns)
        for number, cells in self.rows:
            if len(cells) == width:
                yield self.location(number), [cells[index] for index in indices], ""
            else:
                yield self.location(number), None, FEW if len(cells) < width else MANY

    def valid_rows(self, columns: Sequence[str]) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield (location, cells of the columns) of every row; raises UserError for a malformed row."""
        for location, cells, why in self.select(columns):
            if cells is None:
                raise UserError(f"{location} has {why}. Correct or remove the row.")
            yield location, cells

    def location(self, number: int) -> str:
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
    return _delimited(path, header)


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


def _filled(path: Path, rows: list[T]) -> list[T]:
    if not rows:
        raise UserError(f"{path} is empty. Add rows to the file, or name another file.")
    return rows


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


def _comma_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line, cells) of each record.

    Quoted cells may span lines. The record of an empty line has no cells.
    """
    limit = csv.field_size_limit(_LONGEST)
    start = 1
    reader = csv.reader((line + "\n" for _, line in _lines(path)), strict=True)
    try:
        for cells in reader:
            yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path} line {start} cannot be read as CSV: {error}. Correct the line.") from error
    finally:
        csv.field_size_limit(limit)


def _delimited(path: Path, header: bool) -> DataTable:
    tabs = ((number, line.split("\t")) for number, line in _lines(path))
    records = list(tabs if path.suffix == ".tsv" else _comma_separated(path))
    first, cells = _filled(path, [(number, cells) for number, (_, cells) in enumerate(records) if cells])[0]
    columns = tuple(cells) if header else tuple(map(str, range(len(cells))))
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        raise UserError(f"{path} has the column {twice!r} twice. Rename one of them.")
    # An empty line of a .csv is no row; with one column it is an empty cell.
    body = records[first + 1 :] if header else records
    rows = [(number, cells or [""]) for number, cells in body if cells or len(columns) == 1]
    return DataTable(str(path), "line", columns, rows, {})


def _jsonl(path: Path) -> DataTable:
    records: list[tuple[int, dict[str, Any]]] = []
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = parse_json(line, object)
        except DocumentError as error:
            raise UserError(f"{path} line {number} cannot be read as JSON: {error}. Correct the line.") from error
        if not isinstance(record, dict):
            raise UserError(f"{path} line {number} is not a JSON object. Write one object per line.")
        records.append((number, record))
    columns = tuple(dict.fromkeys(name for _, record in _filled(path, records) for name in record))
    rows = [(number, [record.get(name) for name in columns]) for number, record in records]
    return DataTable(str(path), "line", columns, rows, {})


def _parquet(path: Path) -> DataTable:
    with needs_extra(str(path), "parquet"):
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    rows: list[Sequence[Any]] = []
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            for batch in file.iter_batches(1024, use_threads=False):
                rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is damaged or cut short, so it cannot be read as Parquet: {' '.join(str(error).split())}. "
            "Download the file again."
        ) from error
    names = _class_names(path, schema.metadata)
    return DataTable(str(path), "row", tuple(schema.names), list(enumerate(rows, 1)), names)


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
    """Open a file with a word per line. A row is a sentence, up to an empty line; its cells have an item per word.

    A row's number is the number of its first line. Lines beginning with -DOCSTART- are skipped. "-1" also names the
    last column.
    """
    sentences: list[tuple[int, list[list[str]]]] = []
    width, inside = 0, False
    for number, line in _lines(path):
        if not line.strip() or line.startswith("-DOCSTART-"):
            inside = False
            continue
        cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
        width = width or len(cells)
        if len(cells) != width:
            raise UserError(
                f"{path} line {number} has {len(cells)} columns where the first line has {width}. Correct the line."
            )
        if not inside:
            sentences.append((number, []))
        sentences[-1][1].append(cells)
        inside = True
    columns = (*map(str, range(width)), "-1")
    rows = [
        (number, [[cells[int(name)] for cells in words] for name in columns])
        for number, words in _filled(path, sentences)
    ]
    return DataTable(str(path), "line", columns, rows, {})


class InputForm(NamedTuple):
    """The form of a model's examples: two texts (`pair`), a text split into words (`words`), or else one text."""

    pair: bool = False
    words: bool = False


def from_stdin(stream: Iterable[str], form: InputForm) -> list[Example]:
    """Return an example per line, even for an empty line; a tab separates a pair's texts. Quotation marks remain.

    Raises UserError if the input is not UTF-8, and naming the line of a pair without exactly one tab.
    """
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="strict")  # whatever the locale is
    examples = []
    try:
        for number, line in enumerate(stream, 1):
            texts = line.removesuffix("\n").removesuffix("\r").split("\t") if form.pair else [line.rstrip("\r\n")]
            if len(texts) != 1 + form.pair:
                raise UserError(
                    f"standard input line {number} has {len(texts) - 1} tabs. Separate the two texts by one tab."
                )
            examples.append(_example(number - 1, texts, form))
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 text ({error.reason}). Convert the input to UTF-8.") from error
    return examples


def from_texts(texts: Sequence[str], form: InputForm) -> list[Example]:
    """Return an example per text or, for pairs, per two texts; raises UserError if pairs get an odd number of texts."""
    step = 1 + form.pair
    if len(texts) % step:
        raise UserError(f"{len(texts)} texts do not form pairs. Pass an even number of texts.")
    return [_example(i // step, texts[i : i + step], form) for i in range(0, len(texts), step)]


def from_table(name: str, columns: Sequence[str], form: InputForm, *, header: bool = True) -> list[Example]:
    """Return an example per row of the TSV, CSV, JSONL, Parquet or CoNLL file `name`.

    columns: names of the columns of the one or two texts.
    header: whether the first line of a .tsv or .csv names its columns.

    Raises UserError naming row and column.
    """
    examples = []
    for number, (location, cells) in enumerate(read_table(name, header=header).valid_rows(columns)):
        if form.words and isinstance(cells[0], list):
            words = tuple(fields.text(word, location, columns[0]) for word in cells[0])
            examples.append(Example(str(number), " ".join(words), words=words))
        else:
            texts = [fields.text(cell, location, column) for cell, column in zip(cells, columns, strict=True)]
            examples.append(_example(number, texts, form))
    return examples


def _example(index: int, texts: Sequence[str], form: InputForm) -> Example:
    for text in texts:  # half a surrogate pair may come from the command line
        fields.text(text, f"text {index + 1}", "text")
    words = tuple(texts[0].split()) if form.words else None
    return Example(str(index), texts[0], texts[1] if form.pair else None, words=words)
