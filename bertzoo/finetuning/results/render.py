"""Format a ResultTable as Markdown, CSV or JSON."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from bertzoo.core.markdown import table as markdown_table
from bertzoo.finetuning.results.rows import QUOTED, Cell, ResultRow, ResultTable

LEGEND = (
    'Rows "measured here": the median over seeds, with the lowest and the highest value. Rows "by the leaderboard": '
    'the values in the file of --leaderboard. Rows "quoted": the values that the paper prints.'
)


def markdown(table: ResultTable) -> str:
    """Format a table as Markdown with a heading, a legend and notes."""
    notes = "\n".join(f"- {line}" for line in [LEGEND, *table.notes])
    return "\n\n".join([f"## {table.layout.title}", markdown_table(*_texts(table)), notes])


def comma_separated(table: ResultTable) -> str:
    """Format a table as CSV, a line per cell: model, origin, source, parameters_m, column, value, low, high, seeds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["model", "origin", "source", "parameters_m", "column", "value", "low", "high", "seeds"])
    for row in table.rows:
        for name, cell in _numbers(row):
            numbers = ["" if number is None else f"{number:.10g}" for number in (cell.value, cell.low, cell.high)]
            writer.writerow([row.model, row.origin, row.source, row.parameters, name, *numbers, cell.seeds])
    return text.getvalue().rstrip("\n")


def to_json(table: ResultTable) -> str:
    """Format a table as JSON with title, columns, rows and notes; a cell has value, text, low, high and seeds."""
    rows = [{**asdict(row), "cells": {name: asdict(cell) for name, cell in row.cells.items()}} for row in table.rows]
    columns = [column.name for column in table.layout.columns]
    whole = {"title": table.layout.title, "columns": columns, "rows": rows, "notes": list(table.notes)}
    return json.dumps(whole, indent=2, ensure_ascii=False)


FORMATS: dict[str, Callable[[ResultTable], str]] = {
    "markdown": markdown,
    "csv": comma_separated,
    "json": to_json,
}


def _texts(table: ResultTable) -> tuple[list[str], list[list[str]]]:
    names = [column.name for column in table.layout.columns]
    head = ["model", "", "parameters (M)", *names, *(["average"] if table.layout.average else [])]
    lines = []
    for row in table.rows:
        cells = dict(_numbers(row))
        texts = [cells[name].text if name in cells else "" for name in head[3:]]
        lines.append([row.model, f"{row.origin}: {row.source}", row.parameters, *texts])
    return head, lines


def _numbers(row: ResultRow) -> Sequence[tuple[str, Cell]]:
    return [*row.cells.items(), *([("average", row.average)] if row.average else [])]


def has_own_rows(table: ResultTable) -> bool:
    """Return whether any row is measured, here or by the leaderboard, and not quoted from a paper."""
    return any(row.origin != QUOTED for row in table.rows)
