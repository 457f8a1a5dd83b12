"""Read examples for prediction from lines of text, from the command line or from a table."""

import io
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bertzoo.core.errors import UserError
from bertzoo.tasks import fields, readers
from bertzoo.tasks.task import Example


class InputForm(NamedTuple):
    """The form of a model's examples: two texts (`pair`), a text split into words (`words`), or else one text."""

    pair: bool = False
    words: bool = False


def from_stdin(stream: Iterable[str], form: InputForm) -> list[Example]:
    """Return an example per line, even for an empty line; a tab separates a pair's texts. Quotation marks are kept.

    Raises UserError if the input is not UTF-8, and naming the line of a pair without exactly one tab.
    """
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="strict")  # whatever the locale is
    examples = []
    try:
        for number, line in enumerate(stream, 1):
            parts = line.removesuffix("\n").removesuffix("\r").split("\t") if form.pair else [line.rstrip("\r\n")]
            if len(parts) != 1 + form.pair:
                raise UserError(
                    f"standard input line {number} has {len(parts) - 1} tabs. Separate the two texts by one tab."
                )
            examples.append(_example(number - 1, parts, form))
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 text ({error.reason}). Convert the input to UTF-8.") from error
    return examples


def from_texts(texts: Sequence[str], form: InputForm) -> list[Example]:
    """Return an example per text or, for pairs, per two texts; raises UserError if pairs get an odd number of texts."""
    step = 1 + form.pair
    if len(texts) % step:
        raise UserError(f"{len(texts)} texts do not make pairs. Give an even number of texts.")
    return [_example(i // step, texts[i : i + step], form) for i in range(0, len(texts), step)]


def from_table(name: str, columns: Sequence[str], form: InputForm, *, header: bool = True) -> list[Example]:
    """Return an example per row of the TSV, CSV, JSONL, Parquet or CoNLL file `name`.

    columns: names of the columns of the one or two texts.
    header: whether the first line of a .tsv or .csv names its columns.

    Raises UserError naming row and column.
    """
    examples = []
    for nth, (place, cells) in enumerate(readers.read_table(name, header=header).valid_rows(columns)):
        if form.words and isinstance(cells[0], list):
            words = tuple(fields.text(word, place, columns[0]) for word in cells[0])
            examples.append(Example(str(nth), " ".join(words), words=words))
        else:
            texts = [fields.text(cell, place, column) for cell, column in zip(cells, columns, strict=True)]
            examples.append(_example(nth, texts, form))
    return examples


def _example(index: int, texts: Sequence[str], form: InputForm) -> Example:
    for text in texts:  # half a surrogate pair may come from the command line
        fields.text(text, f"text {index + 1}", "text")
    words = tuple(texts[0].split()) if form.words else None
    return Example(str(index), texts[0], texts[1] if form.pair else None, words=words)
