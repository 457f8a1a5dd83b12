"""How GLUE's tasks lie in files (Wang et al. 2018): their columns, splits, labels and metrics."""

from dataclasses import dataclass

BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
NLI = ("contradiction", "entailment", "neutral")  # BERT's and ELECTRA's order
_HUB_NLI = ("entailment", "neutral", "contradiction")  # by the integers of Hugging Face and TFDS
_TWO = ("sentence1", "sentence2")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the files of a task lie and what their columns are called, by GLUE's own convention and by the hub's.

    The hub's is that of Hugging Face and TFDS. folders: GLUE's directory and other names of it, in any case. tsv: the
    columns of the texts; tsv_test: those of test, where they have other names. hub_names: what the integers of the hub
    stand for, each in the place of the label that GLUE spells as in `hub_labels`.
    """

    name: str
    folders: tuple[str, ...]
    metrics: tuple[str, ...]
    tsv: tuple[str, ...]
    hub: tuple[str, ...]
    tsv_label: str = "label"
    tsv_test: tuple[str, ...] = ()
    tsv_key: str = "index"  # of a test file
    width: int = 0  # of a train and a dev file without a header; else 0
    files: tuple[str, ...] = ()  # other names of the file of the one split
    labels: tuple[str, ...] = BINARY  # in the order of the logits
    hub_names: tuple[str, ...] = ()
    hub_labels: tuple[str, ...] = BINARY
    range: tuple[float, float] | None = None
    symmetric: bool = False  # of those that ELECTRA's code doubles
    train: tuple[str, ...] = ("train",)
    dev: tuple[str, ...] = ("dev",)
    test: tuple[str, ...] = ("test",)

    @property
    def aliases(self) -> dict[str, str]:
        """GLUE's label by each of the hub's names."""
        return dict(zip(self.hub_names, self.hub_labels, strict=True))


LAYOUTS = (
    Layout(
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
    Layout(
        name="sst2",
        folders=("SST-2", "SST"),
        metrics=("accuracy",),
        tsv=("sentence",),
        hub=("sentence",),
        hub_names=("negative", "positive"),
    ),
    Layout(
        name="mrpc",
        folders=("MRPC",),
        metrics=("accuracy", "f1"),
        tsv=("#1 String", "#2 String"),
        tsv_label="Quality",
        hub=_TWO,
        hub_names=("not_equivalent", "equivalent"),
        symmetric=True,
    ),
    Layout(
        name="stsb",
        folders=("STS-B", "STS"),
        metrics=("pearson", "spearman"),
        tsv=_TWO,
        tsv_label="score",
        hub=_TWO,
        labels=(),
        hub_labels=(),
        range=(0.0, 5.0),
        symmetric=True,
    ),
    Layout(
        name="qqp",
        folders=("QQP",),
        metrics=("accuracy", "f1"),
        tsv=("question1", "question2"),
        tsv_label="is_duplicate",
        tsv_key="id",
        hub=("question1", "question2"),
        hub_names=("not_duplicate", "duplicate"),
    ),
    Layout(
        name="mnli",
        folders=("MNLI",),
        metrics=("accuracy",),
        tsv=_TWO,
        tsv_label="gold_label",
        hub=("premise", "hypothesis"),
        labels=NLI,
        hub_names=_HUB_NLI,
        hub_labels=_HUB_NLI,
        dev=("dev_matched", "dev_mismatched"),
        test=("test_matched", "test_mismatched"),
    ),
    Layout(
        name="qnli",
        folders=("QNLI",),
        metrics=("accuracy",),
        tsv=("question", "sentence"),
        hub=("question", "sentence"),
        labels=ENTAILMENT,
        hub_names=ENTAILMENT,
        hub_labels=ENTAILMENT,
    ),
    Layout(
        name="rte",
        folders=("RTE",),
        metrics=("accuracy",),
        tsv=_TWO,
        hub=_TWO,
        labels=ENTAILMENT,
        hub_names=ENTAILMENT,
        hub_labels=ENTAILMENT,
    ),
    Layout(
        name="wnli",
        folders=("WNLI",),
        metrics=("accuracy",),
        tsv=_TWO,
        hub=_TWO,
        hub_names=("not_entailment", "entailment"),
    ),
    Layout(
        name="ax",
        folders=("AX", "diagnostic", "MNLI"),
        metrics=("matthews",),
        tsv=_TWO,
        hub=("premise", "hypothesis"),
        files=("diagnostic.tsv", "AX.tsv"),
        labels=NLI,
        hub_names=_HUB_NLI,
        hub_labels=_HUB_NLI,
        train=(),
        dev=(),
    ),
)
