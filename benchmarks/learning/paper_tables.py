"""Compare fine-tuning runs with papers: a table in a paper's layout, with rows of the paper and of the runs.

published.csv has the scores on GLUE and SQuAD, latencies and sizes of the four papers of the project's models,
transcribed value by value; `note` marks values whose print or scan is doubtful. Without DIR, the table has only the
paper's rows.

examples:
  python -m benchmarks learning.paper_tables runs/glue
  python -m benchmarks learning.paper_tables --table=schubert
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks.lib import averages
from bertzoo.core import tables
from bertzoo.core.errors import UserError
from bertzoo.finetuning import results
from bertzoo.finetuning.results import Cell, FinishedRun, Scores

FILE = Path(__file__).with_name("published.csv")


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table, filled with a model's score on a split of a task.

    scores: the metrics whose mean is the score, such as accuracy and f1.
    metric: the score's name in published.csv, such as "mnli_mm".
    """

    name: str
    metric: str
    task: str
    split: str
    scores: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """The layout of a table that quotes a paper.

    tables: numbers of the quoted tables.
    sections: quote only the sections whose names start with this text; empty: all sections.
    average: name of the average in published.csv; empty without an average.
    convention: name of the average in lib/averages.py; empty without an average.
    """

    title: str
    paper: str
    tables: tuple[str, ...]
    columns: tuple[Column, ...]
    sections: str = ""
    average: str = ""
    convention: str = ""


def _glue(part: str, text: str) -> tuple[Column, ...]:
    """Return a column for each `name metric scores` in a text such as "MNLI-m mnli_m accuracy, QQP qqp accuracy+f1".

    part: "dev" or "test", the sets of GLUE.
    metric: a name in published.csv. It starts with the task's name; for MNLI, it may end with m (matched) or mm
    (mismatched).
    """
    result = []
    for name, metric, scores in (column.split() for column in text.split(", ")):
        task = metric.split("_")[0]
        split = {"mnli_mm": f"{part}_mismatched"}.get(metric, f"{part}_matched" if task == "mnli" else part)
        result.append(Column(name=name, metric=metric, task=task, split=split, scores=tuple(scores.split("+"))))
    return tuple(result)


# SQuAD 2.0's scores use the best "no answer" threshold on the dev set (BERT, §4.3).
_SQUAD = tuple(
    Column(name=f"SQuAD {version} {name}", metric=f"{task}_{name.lower()}", task=task, split="dev", scores=(score,))
    for version, task, scores in (
        ("1.1", "squad1", ("exact_match", "f1")),
        ("2.0", "squad2", ("best_exact", "best_f1")),
    )
    for name, score in zip(("EM", "F1"), scores, strict=True)
)
_MNLI = "MNLI-m mnli_m accuracy, MNLI-mm mnli_mm accuracy"
_SQUEEZEBERT = (
    f"{_MNLI}, QQP qqp accuracy+f1, QNLI qnli accuracy, SST-2 sst2 accuracy, CoLA cola_mcc matthews, "
    "STS-B stsb pearson+spearman, MRPC mrpc accuracy+f1, RTE rte accuracy"
)
_CONVBERT = (
    "MNLI mnli accuracy, QNLI qnli accuracy, QQP qqp_acc accuracy, RTE rte accuracy, SST-2 sst2 accuracy, "
    "MRPC mrpc accuracy, CoLA cola_mcc matthews, STS-B stsb spearman"
)
_MOBILEBERT = (
    "CoLA cola_mcc matthews, SST-2 sst2 accuracy, MRPC mrpc f1, STS-B stsb spearman, QQP qqp_f1 f1, "
    f"{_MNLI}, QNLI qnli accuracy, RTE rte accuracy"
)


def _glue_table(
    part: str, paper: str, number: str, columns: str, convention: str, note: str = "", sections: str = ""
) -> PaperTable:
    """Return the layout of a paper's table of GLUE scores with an average.

    part: "dev" or "test", the sets of GLUE. number: the table's number in the paper.
    """
    return PaperTable(
        title=f"GLUE, {'development' if part == 'dev' else 'test'} sets ({paper}, Table {number}{note})",
        paper=paper,
        tables=(number,),
        columns=_glue(part, columns),
        sections=sections,
        average="glue_avg",
        convention=convention,
    )


# Layouts by the value of --table; the default is the first one with a column for any of the runs.
PAPER_TABLES = {
    "squeezebert_dev": _glue_table("dev", "SqueezeBERT", "2", _SQUEEZEBERT, "squeezebert_dev"),
    "squeezebert_test": _glue_table(
        "test", "SqueezeBERT", "3", f"{_SQUEEZEBERT}, WNLI wnli accuracy", "squeezebert_test"
    ),
    "convbert_dev": _glue_table("dev", "ConvBERT", "2", _CONVBERT, "convbert"),
    "convbert_parts": _glue_table("dev", "ConvBERT", "1", _CONVBERT, "convbert", note=", averages only"),
    "convbert_test": _glue_table("test", "ConvBERT", "3", _CONVBERT, "convbert"),
    "convbert_squad": PaperTable(
        title="SQuAD, development sets (ConvBERT, Table 4)", paper="ConvBERT", tables=("4",), columns=_SQUAD
    ),
    "mobilebert_search": PaperTable(
        title="SQuAD 1.1, development set (MobileBERT, Tables 2 and 3)",
        paper="MobileBERT",
        tables=("2", "3"),
        columns=(_SQUAD[1],),
    ),
    "mobilebert_dev": PaperTable(
        title="GLUE and SQuAD 1.1, development sets (MobileBERT, Tables 6, 8 and 9)",
        paper="MobileBERT",
        tables=("6", "8", "9"),
        columns=(
            *_glue("dev", "MNLI-m mnli_m accuracy, QNLI qnli accuracy, MRPC mrpc accuracy, SST-2 sst2 accuracy"),
            _SQUAD[1],
        ),
    ),
    "mobilebert_test": _glue_table("test", "MobileBERT", "4", _MOBILEBERT, "mobilebert_test", sections="GLUE"),
    "mobilebert_squad": PaperTable(
        title="SQuAD, development sets (MobileBERT, Table 5)", paper="MobileBERT", tables=("5",), columns=_SQUAD
    ),
    "schubert": PaperTable(
        title="SQuAD and GLUE, development sets (schuBERT, Tables 1, 6, 8 and 10 to 13)",
        paper="schuBERT",
        tables=("1", "6", "8", "10", "11", "12", "13"),
        columns=(
            *_SQUAD,
            *_glue("dev", "MNLI mnli accuracy, MRPC mrpc accuracy, SST-2 sst2 accuracy, RTE rte accuracy"),
        ),
        average="avg",
        convention="schubert",
    ),
}


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


def paper_rows(paper: str, tables: Sequence[str], sections: str = "") -> list[PaperRow]:
    """Return rows of a paper's tables, in the paper's order.

    tables: numbers of the tables. sections: keep only rows whose section starts with this text.
    """
    with FILE.open(encoding="utf-8", newline="") as file:
        values = [PaperValue(**line) for line in csv.DictReader(file)]
    rows: dict[tuple[str, ...], PaperRow] = {}
    for value in values:
        if value.paper == paper and value.table in tables and value.section.startswith(sections):
            row = rows.setdefault(value[:5], PaperRow(*value[:5], values={}))
            row.values[value.metric] = value
    return list(rows.values())


def build_table(layout: PaperTable, runs: Iterable[FinishedRun]) -> tuple[list[list[str]], list[str]]:
    """Return a table's rows as texts, with its head, and notes on the rows of runs.

    The rows are the paper's, and one for each group of runs.
    """
    head = ["model", "", "parameters (M)", *(column.name for column in layout.columns)]
    head += ["average"] * bool(layout.average)
    rows = [head, *(_quoted(layout, row) for row in paper_rows(layout.paper, layout.tables, layout.sections))]
    groups, notes = results.best_runs(run for run in runs if has_column(layout, run))
    for group in groups:
        first = next(iter(group.values()))
        texts, caveats = _scores(layout, group)
        rows.append([first.kind, f"measured here: {first.source}", f"{first.parameters / 1e6:.1f}", *texts])
        notes += [f"{first.kind} ({first.source}) {caveat}" for caveat in caveats]
        if "squad2" in group and "f1" in group["squad2"].median.get("dev", {}):
            notes.append(
                "squad2: EM and F1 use the best thresholds on the development set; with the run's own threshold, F1 "
                f"is {group['squad2'].median['dev']['f1']:.1f} ({group['squad2'].path})"
            )
    return rows, notes


def has_column(layout: PaperTable, run: FinishedRun) -> bool:
    """Return whether the layout has a column for a score of a run."""
    return any(_text(column, run) for column in layout.columns)


def _quoted(layout: PaperTable, row: PaperRow) -> list[str]:
    metrics = ["params_m", *(column.metric for column in layout.columns), *[layout.average] * bool(layout.average)]
    name = ", ".join(part for part in (row.model, row.variant) if part)
    values = [row.values[metric].value if metric in row.values else "" for metric in metrics]
    return [name, f"quoted: {row.paper}, Table {row.table}, {row.section}", *values]


def _scores(layout: PaperTable, runs: Mapping[str, FinishedRun]) -> tuple[list[str], list[str]]:
    """Return the texts of the scores of a row's runs by task, the average last, and remarks on the average."""
    texts = {c.name: _text(c, runs[c.task]) if c.task in runs else "" for c in layout.columns}
    if not layout.average:
        return [*texts.values()], []
    part = layout.columns[-1].split.split("_")[0]
    named = {  # by the names of lib/averages
        f"{task}{split.removeprefix(part)}/{metric}": value
        for task, run in runs.items()
        for split, metrics in run.median.items()
        if split.split("_")[0] == part
        for metric, value in metrics.items()
    }
    try:
        average = averages.average(layout.convention, named)
    except UserError:
        missing = [column.name for column in layout.columns if not texts[column.name] and column.task != "wnli"]
        return [*texts.values(), ""], [f"has no average: {', '.join(missing)} missing"]
    counted = "wnli/accuracy" in sum(averages.AVERAGES[layout.convention], ()) and "wnli" not in runs
    caveat = f"counts WNLI as {averages.WNLI}, the accuracy of its most common label"
    return [*texts.values(), f"{average:.1f}"], [caveat] * counted


def _text(column: Column, run: FinishedRun) -> str:
    """Return a score's text for a run; "" if the run lacks the column's scores."""
    if run.task != column.task or (value := _mean(column, run.median)) is None:
        return ""
    by_seed = [score for scores in run.seeds if (score := _mean(column, scores)) is not None]
    return Cell(value, min(by_seed), max(by_seed), len(by_seed)).text


def _mean(column: Column, scores: Scores) -> float | None:
    split = scores.get(column.split, {})
    return fmean(split[name] for name in column.scores) if set(column.scores) <= split.keys() else None


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and name the runs that it leaves out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="*", metavar="DIR", help="a fine-tuning run or a directory of runs")
    parser.add_argument("--table", choices=PAPER_TABLES, help="default: the first with a column for one of the runs")
    args = parser.parse_args(argv)
    try:
        runs, left_out = results.collect_runs(args.directories)
    except UserError as error:
        sys.exit(f"paper_tables: {error}")
    fitting = {name: [run for run in runs if has_column(layout, run)] for name, layout in PAPER_TABLES.items()}
    table = args.table or next((name for name, fit in fitting.items() if fit), next(iter(fitting)))
    for run in runs:
        if run not in fitting[table]:
            other = next((name for name, fit in fitting.items() if run in fit), None)
            left_out.append(f"{run.path} has no score in the table {table}" + f"; use --table={other}" * bool(other))
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    if args.directories and not fitting[table]:
        sys.exit("paper_tables: no run has a score in the table.")
    (head, *rows), notes = build_table(PAPER_TABLES[table], fitting[table])
    print(f"## {PAPER_TABLES[table].title}", tables.markdown(head, rows), sep="\n\n")
    print("", *(f"- {note}" for note in notes), sep="\n")
