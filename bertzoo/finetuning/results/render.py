"""A table as Markdown, LaTeX, CSV or JSON."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from bertzoo.core.markdown import table as markdown_table
from bertzoo.finetuning.results.rows import QUOTED, Cell, Row, Table

_LATEX = {character: f"\\{character}" for character in "&%$#_{}"}
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--"}
LEGEND = (
    "Measured here: the median over seeds, with the lowest and the highest; by the leaderboard: as its file says; "
    "quoted: as the paper prints it."
)


def markdown(table: Table) -> str:
    """A heading, the table, what measured and quoted mean, and the notes."""
    head, lines = _cells(table)
    return "\n\n".join(
        [
            f"## {table.layout.title}",
            markdown_table(head, lines),
            "\n".join(f"- {line}" for line in [LEGEND, *table.notes]),
        ]
    )


def latex(table: Table) -> str:
    """A `tabular` that needs no package, under its title and notes as comments."""
    head, lines = _cells(table)
    rows = [" & ".join("".join(_LATEX.get(c, c) for c in cell) for cell in row) + r" \\" for row in (head, *lines)]
    comments = [f"% {line}" for line in (table.layout.title, LEGEND, *table.notes)]
    begin = rf"\begin{{tabular}}{{lll{'r' * (len(head) - 3)}}}"
    return "\n".join([*comments, begin, r"\hline", rows[0], r"\hline", *rows[1:], r"\hline", r"\end{tabular}"])


def comma_separated(table: Table) -> str:
    """One line a number: model, origin, source, parameters, column, value, lowest, highest, seeds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["model", "origin", "source", "parameters_m", "column", "value", "low", "high", "seeds"])
    for row in table.rows:
        for name, cell in _numbers(row):
            numbers = [_number(number) for number in (cell.value, cell.low, cell.high)]
            seeds = "" if cell.seeds is None else cell.seeds
            writer.writerow([row.model, row.origin, row.source, row.parameters, name, *numbers, seeds])
    return text.getvalue().rstrip("\n")


def as_json(table: Table) -> str:
    """An object with title, columns, rows and notes; a number has value, text, low, high and seeds."""
    rows = [{**asdict(row), "cells": {name: asdict(cell) for name, cell in row.cells.items()}} for row in table.rows]
    columns = [column.name for column in table.layout.columns]
    whole = {"title": table.layout.title, "columns": columns, "rows": rows, "notes": list(table.notes)}
    return json.dumps(whole, indent=2, ensure_ascii=False)


FORMATS: dict[str, Callable[[Table], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
    "json": as_json,
}


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    names = [column.name for column in table.layout.columns]
    head = ["model", "", "parameters (M)", *names, *(["average"] if table.layout.average else [])]
    lines = []
    for row in table.rows:
        found = dict(_numbers(row))
        texts = [found[name].text if name in found else "" for name in head[3:]]
        lines.append([row.model, f"{row.origin}: {row.source}", row.parameters, *texts])
    return head, lines


def _numbers(row: Row) -> Sequence[tuple[str, Cell]]:
    return [*row.cells.items(), *([("average", row.average)] if row.average else [])]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def measured(table: Table) -> bool:
    """Whether any row is one's own."""
    return any(row.origin != QUOTED for row in table.rows)
