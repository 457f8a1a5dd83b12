"""GLUE (Wang et al. 2018): nine tasks and the diagnostic set, from GLUE's TSVs or Hugging Face's Parquet files.

A directory's files decide between TSV and Parquet. Labels are matched by name, since the sources number them
differently. Quotation marks in TSVs have no meaning. Rows of train and dev with too few or too
many columns are skipped and counted; ELECTRA's code skips only rows with too few, and cuts a text at an extra tab.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk
from bertzoo.tasks import fields, readers
from bertzoo.tasks.readers import DataTable
from bertzoo.tasks.task import Example, Label, SplitExamples, Task

BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
NLI = ("contradiction", "entailment", "neutral")  # BERT's and ELECTRA's order
_HUB_NLI = ("entailment", "neutral", "contradiction")  # in the order of Hugging Face's integers
_TWO = ("sentence1", "sentence2")
_NLI_LABELS: dict[str, Any] = {"labels": NLI, "hub_names": _HUB_NLI, "hub_labels": _HUB_NLI}
_ENTAILMENT_LABELS: dict[str, Any] = {"labels": ENTAILMENT, "hub_names": ENTAILMENT, "hub_labels": ENTAILMENT}


@dataclass(frozen=True, kw_only=True)
class GlueLayout:
    """The files, columns and labels of a task in GLUE's TSV files and on the hub (Hugging Face).

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


@dataclass(frozen=True)
class _Reader:
    """Reads the splits of a GLUE task; an instance serves as the task's `Task.read`."""

    layout: GlueLayout

    def __call__(self, split: str, directory: Path | str) -> SplitExamples:
        layout, labelled = self.layout, split not in self.layout.test
        splits = (*layout.train, *layout.dev, *layout.test)
        if split not in splits:
            raise UserError(f"split = {split!r} does not exist in {layout.name}. Use one of {', '.join(splits)}.")
        files = _find(layout, split, on_disk(directory, "data_dir", "Copy the files to this machine."))
        if files[0].suffix == readers.PARQUET:
            target = "label" if labelled else None
            return self._read([readers.read_table(path) for path in files], layout.hub, target, "idx")
        if not labelled:
            return self._read([readers.read_table(files[0])], layout.tsv_test or layout.tsv, None, layout.tsv_key)
        table = readers.read_table(files[0], header=not layout.width)
        if layout.width and len(table.columns) != layout.width:
            raise UserError(
                f"{table.place(1)} has {len(table.columns)} columns, but GLUE's file has {_described(layout, split)}. "
                "Use the file as GLUE distributes it."
            )
        return self._read([table], layout.tsv, layout.tsv_label, None)

    def _read(
        self, parts: Sequence[DataTable], columns: Sequence[str], target: str | None, index: str | None
    ) -> SplitExamples:
        """Read examples from tables. columns, target, index: the columns of the texts, the labels and the keys."""
        examples: list[Example] = []
        skipped: Counter[str] = Counter()
        for table in parts:
            to_label = self._to_label(table, target)
            for nth, row in enumerate(table.select([*columns, *filter(None, (target, index))])):
                place = table.place(row.number)
                if row.cells is None and target:
                    skipped[row.why] += 1
                    continue
                if row.cells is None:
                    raise UserError(f"{place} has {row.why}, but a test set needs every row. Correct the row.")
                texts = [fields.text(cell, place, name) for cell, name in zip(row.cells, columns, strict=False)]
                key = str(row.cells[-1]) if index else str(nth)
                label = to_label(row.cells[len(texts)], place) if target else None
                examples.append(Example(key, texts[0], texts[1] if len(texts) > 1 else None, label))
        if not examples:
            raise UserError(f"{parts[0].name} holds no example. Download the file again.")
        return SplitExamples(examples, dict(skipped))

    def _to_label(self, table: DataTable, column: str | None) -> Callable[[Any, str], Label]:
        """Return a function (cell, place) -> label for a column; without a column, labels are None."""
        layout = self.layout
        if column is None:
            return lambda cell, place: None
        if layout.range:
            return lambda cell, place: fields.number(cell, place, column, layout.range)
        index = {label: place for place, label in enumerate(layout.labels)}
        index |= {name: index[label] for name, label in layout.aliases.items()}
        names = table.names.get(column, layout.hub_names)

        def to_index(cell: Any, place: str) -> int:
            return fields.label_index(fields.label_name(cell, place, column, names), index, place, column)

        return to_index


def _hub_split(split: str) -> str:
    """Return Hugging Face's name of a split."""
    return split.replace("dev", "validation")


def _find(layout: GlueLayout, split: str, root: Path) -> list[Path]:
    """Find the files of a split in `root` or in the task's folder inside it: one TSV, or one or more Parquet files."""
    inside = sorted(root.iterdir()) if root.is_dir() else []
    known = {name.casefold() for name in (*layout.folders, layout.name)}
    hub = _hub_split(split)
    for directory in (*(path for path in inside if path.name.casefold() in known and path.is_dir()), root):
        tsv = [path for name in (f"{split}.tsv", *layout.files) if (path := directory / name).is_file()]
        patterns = (f"{hub}.parquet", f"{hub}-[0-9]*.parquet", f"{hub}/*.parquet")
        parquet = [path for pattern in patterns for path in sorted(directory.glob(pattern))]
        if tsv and parquet:
            raise UserError(f"{directory} holds both {tsv[0].name} and {parquet[0].name}. Keep one.")
        if tsv or parquet:
            return tsv[:1] or parquet
    raise UserError(
        f"{root} holds no {split} split of {layout.folders[0]}. Add GLUE's {layout.folders[0]}/{split}.tsv"
        f" ({_described(layout, split)}) or Hugging Face's {layout.name}/{hub}-00000-of-00001.parquet."
    )


def _described(layout: GlueLayout, split: str) -> str:
    text, label = ", ".join(layout.tsv), layout.tsv_label
    if split in layout.test:
        return f"a header with the columns {layout.tsv_key}, {', '.join(layout.tsv_test or layout.tsv)}"
    if layout.width:
        return (
            f"{layout.width} columns without a header: the label in column {label} and the text in column {text}, "
            "counted from 0"
        )
    return f"a header with the columns {text}, {label}"


# Fields that a task has from its layout.
_SHARED = ("name", "metrics", "labels", "aliases", "symmetric", "range", "train", "dev", "test")


def _task(layout: GlueLayout) -> Task:
    return Task(
        kind="regression" if layout.range else "classification",
        read=_Reader(layout),
        pair=len(layout.tsv) > 1,
        **{name: getattr(layout, name) for name in _SHARED},
    )


GLUE: dict[str, Task] = {layout.name: _task(layout) for layout in LAYOUTS}
