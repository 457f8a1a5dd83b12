"""Layouts of the papers' tables of fine-tuning results: their columns, the scores in each column, and the average."""

from dataclasses import dataclass


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
    convention: name of the average in tasks/averages.py; empty without an average.
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
