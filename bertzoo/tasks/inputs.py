"""Texts without labels, of which something is to be said: from lines, from words of a command line, from a table."""

import io
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bertzoo.core.errors import UserError
from bertzoo.tasks import fields, readers
from bertzoo.tasks.task import Example


class Wanted(NamedTuple):
    """What a model reads: two texts, or a text's words, or one text."""

    pair: bool = False
    words: bool = False


def lines(found: Iterable[str], wanted: Wanted, name: str) -> list[Example]:
    """An example a line, which may be empty; of pairs both texts are separated by a tab. A quotation mark is one.

    Raises UserError naming the line that has not one tab. Of one text a tab is a part.
    """
    examples = []
    for number, line in enumerate(found, 1):
        parts = line.removesuffix("\n").removesuffix("\r").split("\t") if wanted.pair else [line.rstrip("\r\n")]
        if len(parts) != 1 + wanted.pair:
            raise UserError(
                f"{name} line {number} has {len(parts) - 1} tabs where one is between the two texts of a pair"
            )
        examples.append(_example(number - 1, parts, wanted))
    return examples


def standard_input(stream: Iterable[str], wanted: Wanted) -> list[Example]:
    """An example a line, as `lines`; raises UserError for what is not UTF-8, too."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="strict")  # whatever the locale lets through
    try:
        return lines(stream, wanted, "standard input")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 text ({error.reason}): convert it") from error


def words(found: Sequence[str], wanted: Wanted) -> list[Example]:
    """An example a word of a command line, of pairs every two; raises UserError where one of two is missing."""
    step = 1 + wanted.pair
    if len(found) % step:
        raise UserError(f"{len(found)} texts are given where two make a pair: the first, the second, and so on")
    return [_example(i // step, found[i : i + step], wanted) for i in range(0, len(found), step)]


def table(name: str, columns: Sequence[str], wanted: Wanted, *, header: bool = True) -> list[Example]:
    """An example a row of a TSV, CSV, JSONL, Parquet or CoNLL file; raises UserError naming row and column."""
    opened = readers.read(name, header=header)
    examples = []
    for nth, row in enumerate(opened.select(columns)):
        place = opened.place(row.number)
        if row.cells is None:
            raise UserError(f"{place} has {row.why}: mend it or leave it out")
        if wanted.words and isinstance(row.cells[0], list):
            listed = tuple(fields.text(word, place, columns[0]) for word in row.cells[0])
            examples.append(Example(str(nth), " ".join(listed), words=listed))
            continue
        texts = [fields.text(cell, place, column) for cell, column in zip(row.cells, columns, strict=True)]
        examples.append(_example(nth, texts, wanted))
    return examples


def _example(index: int, texts: Sequence[str], wanted: Wanted) -> Example:
    for text in texts:  # of a command line, or a file in another encoding
        fields.text(text, f"text {index + 1}", "text")
    listed = tuple(texts[0].split()) if wanted.words else None
    return Example(str(index), texts[0], texts[1] if wanted.pair else None, words=listed)
