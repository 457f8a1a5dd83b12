"""Scores on GLUE and SQuAD, latencies and sizes, as printed in the four papers of the project's models.

`published.csv` was transcribed from the papers' tables, value by value; `note` marks values whose print or scan is
doubtful.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("published.csv")


class PaperValue(NamedTuple):
    """A number in a paper. value: the text as printed. metric: what the number measures, such as mnli_m or params_m."""

    paper: str
    table: str
    section: str
    model: str
    variant: str
    metric: str
    value: str
    unit: str
    note: str


class PaperRow(NamedTuple):
    """A row of a paper's table: the values of one model by metric."""

    paper: str
    table: str
    section: str
    model: str
    variant: str
    values: dict[str, PaperValue]


def paper_values() -> tuple[PaperValue, ...]:
    """Return all values of published.csv, in the order of the papers' tables."""
    with FILE.open(encoding="utf-8", newline="") as file:
        head, *lines = csv.reader(file)
    if tuple(head) != PaperValue._fields:
        raise ValueError(f"{FILE.name} has the columns {head}, not {list(PaperValue._fields)}. Restore the file.")
    return tuple(PaperValue(*line) for line in lines)


def paper_rows(paper: str, tables: Sequence[str], sections: str = "") -> list[PaperRow]:
    """Return rows of a paper's tables, in the paper's order.

    tables: numbers of the tables. sections: keep only rows whose section starts with this text.
    """
    rows: dict[tuple[str, ...], PaperRow] = {}
    for value in paper_values():
        if value.paper == paper and value.table in tables and value.section.startswith(sections):
            row = rows.setdefault(value[:5], PaperRow(*value[:5], values={}))
            row.values[value.metric] = value
    return list(rows.values())
