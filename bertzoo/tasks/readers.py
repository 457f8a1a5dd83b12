"""Tables: TSV, CSV, JSONL, Parquet, files of one word a line as CoNLL's tasks have, and data sets of TFDS."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk
from bertzoo.data.sources import tfds

FEW, MANY = "fewer columns than the header", "more columns than the header"
PARQUET = ".parquet"
WORDS = (".conll", ".bio", ".iob", ".txt")
SUFFIXES = (".tsv", ".csv", ".jsonl", PARQUET, *WORDS)
_LONGEST = 1 << 30  # characters of a cell, of which the csv module allows 131,072 unless told


class Row(NamedTuple):
    """A row's number, from 1, and its cells; None where it is malformed, and `why` says how."""

    number: int
    cells: Sequence[Any] | None
    why: str = ""


@dataclass(frozen=True)
class Table:
    """What has rows, yet to be read. names: by column, what its integers stand for, where the table says so."""

    name: str
    unit: str  # what a row is called in messages
    columns: tuple[str, ...]
    rows: Callable[[Sequence[str]], Iterator[Row]]
    names: dict[str, tuple[str, ...]]

    def select(self, columns: Sequence[str]) -> Iterator[Row]:
        """The rows with the cells of these columns alone; raises UserError for a column that is not there."""
        for column in columns:
            if column not in self.columns:
                raise UserError(
                    f"{self.name} has no column {column!r} but {', '.join(self.columns)}: name the columns that it has"
                )
        return self.rows(columns)

    def place(self, number: int) -> str:
        """What messages call a row."""
        return f"{self.name} {self.unit} {number}"


def read(name: Path | str, *, header: bool = True) -> Table:
    """Opens a file by what its suffix says it is; raises UserError where it is missing, empty or not text.

    A .tsv has no quotation: a quotation mark is one. header: without it columns are called 0, 1, and so on.
    """
    path = on_disk(name, "the table", "copy it to this machine and name the copy")
    if path.is_dir():
        raise UserError(f"{path} is a directory where a table is read: name a file in it")
    if not path.is_file():
        raise UserError(f"the file {path} does not exist")
    if path.suffix == PARQUET:
        return _parquet(path)
    if path.suffix == ".jsonl":
        return _jsonl(path)
    if path.suffix in WORDS:
        return _words(path)
    if path.suffix not in (".tsv", ".csv"):
        raise UserError(f"{path} is of no kind that can be read: name it {', '.join(SUFFIXES)} after what it holds")
    return _delimited(path, _tab_separated if path.suffix == ".tsv" else _comma_separated, header)


def dataset(name: str, split: str) -> Table:
    """A split of a data set that TensorFlow Datasets has prepared; raises CorpusError where it is not there."""
    examples = tfds.open_split(name, split)
    features = dict(examples.dataset_info.features)

    def rows(wanted: Sequence[str]) -> Iterator[Row]:
        for number in range(len(examples)):
            example = examples[number]
            yield Row(number + 1, [_plain(example[column]) for column in wanted])

    names = {column: tuple(feature.names) for column, feature in features.items() if hasattr(feature, "names")}
    return Table(f"{tfds.PREFIX}{name} {split}", "example", tuple(features), rows, names)


def _plain(cell: Any) -> Any:
    """What is an array of no dimensions there, or a number of numpy's, as Python's own."""
    return cell.item() if isinstance(cell, np.ndarray | np.generic) and cell.ndim == 0 else cell


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines without their ends, which are "\\n" or "\\r\\n" and nothing else."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UserError(f"{path} line {number} is not UTF-8 text ({error.reason}): convert it") from error
            if "\0" in text:
                raise UserError(f"{path} line {number} holds a NUL byte: it is not a text file")
            yield number, text.removesuffix("\n").removesuffix("\r")


def _tab_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split("\t")) for number, line in _lines(path))


def _comma_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Records, which may have line breaks inside quotation marks, with the number of their first line; an empty line
    is one without cells."""
    limit = csv.field_size_limit(_LONGEST)
    records, start = [], 1
    reader = csv.reader((line + "\n" for _, line in _lines(path)), strict=True)
    try:
        for cells in reader:
            records.append((start, cells))
            start = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path} line {start} cannot be read as CSV: {error}") from error
    finally:
        csv.field_size_limit(limit)
    return iter(records)


def _delimited(path: Path, parse: Callable[[Path], Iterator[tuple[int, list[str]]]], header: bool) -> Table:
    first = next((record for record in parse(path) if record[1]), None)
    if first is None:
        raise UserError(f"{path} is empty")
    columns = tuple(first[1]) if header else tuple(map(str, range(len(first[1]))))
    _distinct(path, columns)

    def rows(wanted: Sequence[str]) -> Iterator[Row]:
        places, width = [columns.index(name) for name in wanted], len(columns)
        records = parse(path)
        if header:
            next(record for record in records if record[1])
        for number, cells in records:
            if not cells and width > 1:  # of a .csv, where it is no row; of one column it is an empty cell
                continue
            cells = cells or [""]
            if len(cells) == width:
                yield Row(number, [cells[place] for place in places])
            else:
                yield Row(number, None, FEW if len(cells) < width else MANY)

    return Table(str(path), "line", columns, rows, {})


def _distinct(path: Path, columns: Sequence[str]) -> None:
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        raise UserError(f"{path} has the column {twice!r} twice: rename one of them")


def _jsonl(path: Path) -> Table:
    def records() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in _lines(path):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"{path} line {number} is not JSON: {error}") from error
            except RecursionError as error:
                raise UserError(f"{path} line {number} is nested too deeply to be read") from error
            except ValueError as error:  # what else Python's own reader refuses
                raise UserError(f"{path} line {number} has an integer of too many digits to be read") from error
            if not isinstance(record, dict):
                raise UserError(f"{path} line {number} is JSON without an object: give one object a line")
            yield number, record

    first = next(records(), None)
    if first is None:
        raise UserError(f"{path} is empty")

    def rows(wanted: Sequence[str]) -> Iterator[Row]:
        for number, record in records():
            yield Row(number, [record.get(name) for name in wanted])

    return Table(str(path), "line", tuple(first[1]), rows, {})


def _parquet(path: Path) -> Table:
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError(
            f"{path} is read with pyarrow, which is missing: `pip install '.[parquet]'` in the checkout adds it"
        ) from error
    damaged = (pyarrow.ArrowException, OSError, UnicodeDecodeError)

    def refused(error: Exception) -> UserError:
        said = " ".join(str(error).split())
        return UserError(f"{path} cannot be read as Parquet, it is damaged or cut short: {said}")

    try:
        schema = pyarrow.parquet.read_schema(path)
    except damaged as error:
        raise refused(error) from error

    def rows(wanted: Sequence[str]) -> Iterator[Row]:
        try:
            number = 0
            with pyarrow.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(1024, columns=list(wanted), use_threads=False):
                    for cells in zip(*(batch.column(name).to_pylist() for name in wanted), strict=True):
                        number += 1
                        yield Row(number, cells)
        except damaged as error:
            raise refused(error) from error

    return Table(str(path), "row", tuple(schema.names), rows, _class_names(schema.metadata))


def _class_names(metadata: dict[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """What Hugging Face's `datasets` writes beside a table: the names of the integers of a column of classes."""
    features = json.loads((metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    found = {
        column: feature.get("feature", feature) for column, feature in features.items() if isinstance(feature, dict)
    }
    return {column: tuple(feature["names"]) for column, feature in found.items() if "names" in feature}


def _words(path: Path) -> Table:
    """Sentences between empty lines, a word a line; a row's cells are lists with an item a word.

    A row has the number of its first line. Lines that begin with -DOCSTART- are left out. The last column is also -1.
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

    first = next(sentences(), None)
    if first is None:
        raise UserError(f"{path} is empty")
    width = len(first[1][0])

    def rows(wanted: Sequence[str]) -> Iterator[Row]:
        places = [int(name) for name in wanted]
        for start, words in sentences():
            odd = next((i for i, cells in enumerate(words) if len(cells) != width), None)
            if odd is None:
                yield Row(start, [[cells[place] for cells in words] for place in places])
            else:
                why = f"{len(words[odd])} columns where the first line has {width}"
                yield Row(start + odd, None, why)

    return Table(str(path), "line", (*map(str, range(width)), "-1"), rows, {})
