"""What the papers print of fine-tuning and of speed: scores on GLUE and SQuAD, settings searched and chosen, latencies.

`published.csv` was transcribed from the papers' tables, value by value; `note` says where print or scan leave a doubt.
Nothing here is computed, and what is not in the file is not known here.
"""

import csv
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("published.csv")


class Value(NamedTuple):
    """One printed number; `value` is the text as printed, `metric` its column's name, such as mnli_m or params_m."""

    paper: str
    table: str
    section: str
    model: str
    variant: str
    metric: str
    value: str
    unit: str
    note: str


class Row(NamedTuple):
    """A row of a paper's table: the values of one model by metric."""

    paper: str
    table: str
    section: str
    model: str
    variant: str
    values: dict[str, Value]


@functools.cache
def values() -> tuple[Value, ...]:
    """All values, in the order of the papers' tables."""
    with FILE.open(encoding="utf-8", newline="") as file:
        head, *lines = csv.reader(file)
    if tuple(head) != Value._fields:
        raise ValueError(f"{FILE.name} has the columns {head}")
    return tuple(Value(*line) for line in lines)


def rows(paper: str, tables: Sequence[str], sections: str = "") -> list[Row]:
    """The rows of a paper's tables, whose section begins with `sections`, in the order of the paper."""
    found: dict[tuple[str, ...], Row] = {}
    for value in values():
        if value.paper == paper and value.table in tables and value.section.startswith(sections):
            row = found.setdefault(value[:5], Row(*value[:5], values={}))
            row.values[value.metric] = value
    return list(found.values())


def settings(paper: str, table: str) -> dict[str, dict[str, list[str]]]:
    """The hyperparameters of a paper's table: by task, as the paper spells it, and by name, the values searched or
    chosen.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for value in values():
        if (value.paper, value.table, value.metric) == (paper, table, "hyperparameter"):
            name = value.section.split(": ")[1]
            for task in value.variant.split(": ")[1].split(", "):
                found.setdefault(task, {}).setdefault(name, []).append(value.value)
    return found
