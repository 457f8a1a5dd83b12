"""The papers' tables of fine-tuning results: their columns, what of a run stands in each, and how they average."""

from dataclasses import dataclass

ACCURACY, BOTH, CORRELATIONS = ("accuracy",), ("accuracy", "f1"), ("pearson", "spearman")


@dataclass(frozen=True, kw_only=True)
class Column:
    """metric: its name in published.csv. task, split, scores: those of a run of which the mean stands here."""

    name: str
    metric: str
    task: str
    split: str
    scores: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """tables, sections: of the paper, where the rows quoted are. average: its name in published.csv, empty where the
    paper has none; convention: its name in tasks/averages.py.
    """

    title: str
    paper: str
    tables: tuple[str, ...]
    columns: tuple[Column, ...]
    sections: str = ""
    average: str = ""
    convention: str = ""


def _glue(part: str, *columns: tuple[str, str, tuple[str, ...]]) -> tuple[Column, ...]:
    """Columns by name, metric and scores; the metric begins with the task and ends with m or mm where it has both."""
    made = []
    for name, metric, scores in columns:
        task = metric.split("_")[0]
        split = {"mnli_mm": f"{part}_mismatched"}.get(metric, f"{part}_matched" if task == "mnli" else part)
        made.append(Column(name=name, metric=metric, task=task, split=split, scores=scores))
    return tuple(made)


def _squad() -> tuple[Column, ...]:
    """Those of 2.0 with the best thresholds, as BERT's paper picks its own on the development set (§4.3)."""
    return tuple(
        Column(name=f"SQuAD {version} {name}", metric=f"{task}_{name.lower()}", task=task, split="dev", scores=(score,))
        for version, task, scores in (
            ("1.1", "squad1", ("exact_match", "f1")),
            ("2.0", "squad2", ("best_exact", "best_f1")),
        )
        for name, score in zip(("EM", "F1"), scores, strict=True)
    )


_SQUAD = _squad()
_SQUEEZEBERT = (
    ("MNLI-m", "mnli_m", ACCURACY),
    ("MNLI-mm", "mnli_mm", ACCURACY),
    ("QQP", "qqp", BOTH),
    ("QNLI", "qnli", ACCURACY),
    ("SST-2", "sst2", ACCURACY),
    ("CoLA", "cola_mcc", ("matthews",)),
    ("STS-B", "stsb", CORRELATIONS),
    ("MRPC", "mrpc", BOTH),
    ("RTE", "rte", ACCURACY),
)
_CONVBERT = (
    ("MNLI", "mnli", ACCURACY),
    ("QNLI", "qnli", ACCURACY),
    ("QQP", "qqp_acc", ACCURACY),
    ("RTE", "rte", ACCURACY),
    ("SST-2", "sst2", ACCURACY),
    ("MRPC", "mrpc", ACCURACY),
    ("CoLA", "cola_mcc", ("matthews",)),
    ("STS-B", "stsb", ("spearman",)),
)
# By the value of --table; without one, the first that has a column for a run.
LAYOUTS = {
    "squeezebert_dev": Layout(
        title="GLUE, development sets (SqueezeBERT, Table 2)",
        paper="SqueezeBERT",
        tables=("2",),
        columns=_glue("dev", *_SQUEEZEBERT),
        average="glue_avg",
        convention="squeezebert_dev",
    ),
    "squeezebert_test": Layout(
        title="GLUE, test sets (SqueezeBERT, Table 3)",
        paper="SqueezeBERT",
        tables=("3",),
        columns=_glue("test", *_SQUEEZEBERT, ("WNLI", "wnli", ACCURACY)),
        average="glue_avg",
        convention="squeezebert_test",
    ),
    "convbert_dev": Layout(
        title="GLUE, development sets (ConvBERT, Table 2)",
        paper="ConvBERT",
        tables=("2",),
        columns=_glue("dev", *_CONVBERT),
        average="glue_avg",
        convention="convbert",
    ),
    "convbert_parts": Layout(
        title="GLUE, development sets (ConvBERT, Table 1, of averages alone)",
        paper="ConvBERT",
        tables=("1",),
        columns=_glue("dev", *_CONVBERT),
        average="glue_avg",
        convention="convbert",
    ),
    "convbert_test": Layout(
        title="GLUE, test sets (ConvBERT, Table 3)",
        paper="ConvBERT",
        tables=("3",),
        columns=_glue("test", *_CONVBERT),
        average="glue_avg",
        convention="convbert",
    ),
    "convbert_squad": Layout(
        title="SQuAD, development sets (ConvBERT, Table 4)", paper="ConvBERT", tables=("4",), columns=_SQUAD
    ),
    "mobilebert_search": Layout(
        title="SQuAD 1.1, development set (MobileBERT, Tables 2 and 3)",
        paper="MobileBERT",
        tables=("2", "3"),
        columns=(_SQUAD[1],),
    ),
    "mobilebert_dev": Layout(
        title="GLUE and SQuAD 1.1, development sets (MobileBERT, Tables 6, 8 and 9)",
        paper="MobileBERT",
        tables=("6", "8", "9"),
        columns=(
            *_glue("dev", ("MNLI-m", "mnli_m", ACCURACY), ("QNLI", "qnli", ACCURACY), ("MRPC", "mrpc", ACCURACY)),
            *_glue("dev", ("SST-2", "sst2", ACCURACY)),
            _SQUAD[1],
        ),
    ),
    "mobilebert_test": Layout(
        title="GLUE, test sets (MobileBERT, Table 4)",
        paper="MobileBERT",
        tables=("4",),
        sections="GLUE",
        columns=_glue(
            "test",
            ("CoLA", "cola_mcc", ("matthews",)),
            ("SST-2", "sst2", ACCURACY),
            ("MRPC", "mrpc", ("f1",)),
            ("STS-B", "stsb", ("spearman",)),
            ("QQP", "qqp_f1", ("f1",)),
            ("MNLI-m", "mnli_m", ACCURACY),
            ("MNLI-mm", "mnli_mm", ACCURACY),
            ("QNLI", "qnli", ACCURACY),
            ("RTE", "rte", ACCURACY),
        ),
        average="glue_avg",
        convention="mobilebert_test",
    ),
    "mobilebert_squad": Layout(
        title="SQuAD, development sets (MobileBERT, Table 5)", paper="MobileBERT", tables=("5",), columns=_SQUAD
    ),
    "schubert": Layout(
        title="SQuAD and GLUE, development sets (schuBERT, Tables 1, 6, 8 and 10 to 13)",
        paper="schuBERT",
        tables=("1", "6", "8", "10", "11", "12", "13"),
        columns=(
            *_SQUAD,
            *_glue("dev", ("MNLI", "mnli", ACCURACY), ("MRPC", "mrpc", ACCURACY), ("SST-2", "sst2", ACCURACY)),
            *_glue("dev", ("RTE", "rte", ACCURACY)),
        ),
        average="avg",
        convention="schubert",
    ),
}
