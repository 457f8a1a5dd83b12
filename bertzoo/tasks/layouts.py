"""The files of GLUE's tasks (Wang et al. 2018): their columns, splits, labels and metrics."""

from dataclasses import dataclass
from typing import Any

BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
NLI = ("contradiction", "entailment", "neutral")  # BERT's and ELECTRA's order
_HUB_NLI = ("entailment", "neutral", "contradiction")  # in the order of Hugging Face's and TFDS's integers
_TWO = ("sentence1", "sentence2")
_NLI_LABELS: dict[str, Any] = {"labels": NLI, "hub_names": _HUB_NLI, "hub_labels": _HUB_NLI}
_ENTAILMENT_LABELS: dict[str, Any] = {"labels": ENTAILMENT, "hub_names": ENTAILMENT, "hub_labels": ENTAILMENT}


@dataclass(frozen=True, kw_only=True)
class GlueLayout:
    """The files, columns and labels of a task in GLUE's TSV files and on the "hub" (Hugging Face and TFDS).

    folders: names of the task's folder, in upper or lower case.
    tsv: columns of the texts in a TSV.
    tsv_test: columns of the texts in the test TSV, if they differ.
    hub: columns of the texts on the hub.
    hub_names: the hub's name for each of its integer labels, in order.
    hub_labels: GLUE's label for each of these names.
    """

    name: str
    folders: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    tsv: tuple[str, ...] = _TWO
    hub: tuple[str, ...] = _TWO
    tsv_label: str = "label"
    tsv_test: tuple[str, ...] = ()
    tsv_key: str = "index"  # column of the row numbers in a test file
    width: int = 0  # number of columns of train and dev files without a header, else 0
    files: tuple[str, ...] = ()  # names of the diagnostic set's file other than test.tsv
    labels: tuple[str, ...] = BINARY  # in the order of the logits
    hub_names: tuple[str, ...] = ()
    hub_labels: tuple[str, ...] = BINARY
    range: tuple[float, float] | None = None
    symmetric: bool = False  # ELECTRA's code trains on these pairs in both orders
    train: tuple[str, ...] = ("train",)
    dev: tuple[str, ...] = ("dev",)
    test: tuple[str, ...] = ("test",)

    @property
    def aliases(self) -> dict[str, str]:
        """GLUE's label for each class name on the hub."""
        return dict(zip(self.hub_names, self.hub_labels, strict=True))


LAYOUTS = (
    GlueLayout(
        name="cola",
        folders=("CoLA",),
        metrics=("matthews",),
        tsv=("3",),
        tsv_label="1",
        tsv_test=("sentence",),
        width=4,
        hub=("sentence",),
        hub_names=("unacceptable", "acceptable"),
    ),
    GlueLayout(
        name="sst2",
        folders=("SST-2", "SST"),
        tsv=("sentence",),
        hub=("sentence",),
        hub_names=("negative", "positive"),
    ),
    GlueLayout(
        name="mrpc",
        folders=("MRPC",),
        metrics=("accuracy", "f1"),
        tsv=("#1 String", "#2 String"),
        tsv_label="Quality",
        hub_names=("not_equivalent", "equivalent"),
        symmetric=True,
    ),
    GlueLayout(
        name="stsb",
        folders=("STS-B", "STS"),
        metrics=("pearson", "spearman"),
        tsv_label="score",
        labels=(),
        hub_labels=(),
        range=(0.0, 5.0),
        symmetric=True,
    ),
    GlueLayout(
        name="qqp",
        folders=("QQP",),
        metrics=("accuracy", "f1"),
        tsv=("question1", "question2"),
        tsv_label="is_duplicate",
        tsv_key="id",
        hub=("question1", "question2"),
        hub_names=("not_duplicate", "duplicate"),
    ),
    GlueLayout(
        name="mnli",
        folders=("MNLI",),
        tsv_label="gold_label",
        hub=("premise", "hypothesis"),
        dev=("dev_matched", "dev_mismatched"),
        test=("test_matched", "test_mismatched"),
        **_NLI_LABELS,
    ),
    GlueLayout(
        name="qnli",
        folders=("QNLI",),
        tsv=("question", "sentence"),
        hub=("question", "sentence"),
        **_ENTAILMENT_LABELS,
    ),
    GlueLayout(name="rte", folders=("RTE",), **_ENTAILMENT_LABELS),
    GlueLayout(name="wnli", folders=("WNLI",), hub_names=("not_entailment", "entailment")),
    GlueLayout(
        name="ax",
        folders=("AX", "diagnostic", "MNLI"),
        metrics=("matthews",),
        hub=("premise", "hypothesis"),
        files=("diagnostic.tsv", "AX.tsv"),
        train=(),
        dev=(),
        **_NLI_LABELS,
    ),
)
