"""GLUE (Wang et al. 2018): nine tasks and the diagnostic set, from GLUE's TSVs or Hugging Face's Parquet files.

A directory's files decide between TSV and Parquet. Labels are matched by name, since the sources number them
differently. Quotation marks in TSVs have no meaning. Rows of train and dev with too few or too many columns are skipped
and counted; ELECTRA's code skips only rows with too few, and cuts a text at an extra tab.

A submission to the leaderboard (gluebenchmark.com) is a zip with a TSV for each test set.
"""

import io
import math
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk
from bertzoo.tasks import fields, readers
from bertzoo.tasks.readers import DataTable
from bertzoo.tasks.task import Example, Kind, Label, SplitExamples, Task

_ENTAILMENT = ("entailment", "not_entailment")
_TWO = ("sentence1", "sentence2")
_NLI_LABELS: dict[str, Any] = {
    "labels": ("contradiction", "entailment", "neutral"),  # BERT's and ELECTRA's order
    "aliases": {name: name for name in ("entailment", "neutral", "contradiction")},
}
_ENTAILMENT_LABELS: dict[str, Any] = {"labels": _ENTAILMENT, "aliases": {name: name for name in _ENTAILMENT}}


@dataclass(frozen=True, kw_only=True)
class GlueTask(Task):
    """A task of GLUE, with the files and columns in GLUE's TSV files and on the hub (Hugging Face).

    folders: names of the task's folder, in upper or lower case.
    tsv: columns of the texts in a TSV.
    tsv_test: columns of the texts in the test TSV, if they differ.
    hub: columns of the texts on the hub.
    aliases: in the order of the hub's integer labels.
    """

    kind: Kind = "classification"
    metrics: tuple[str, ...] = ("accuracy",)
    read: Callable[[str, Path | str], SplitExamples] = field(init=False, repr=False)
    labels: tuple[str, ...] = ("0", "1")
    pair: bool = True
    folders: tuple[str, ...]
    tsv: tuple[str, ...] = _TWO
    hub: tuple[str, ...] = _TWO
    tsv_label: str = "label"
    tsv_test: tuple[str, ...] = ()
    tsv_key: str = "index"  # column of the row numbers in a test file
    width: int = 0  # number of columns of train and dev files without a header, else 0
    files: tuple[str, ...] = ()  # names of the diagnostic set's file other than test.tsv

    def __post_init__(self) -> None:
        object.__setattr__(self, "read", self._read_split)

    def _read_split(self, split: str, directory: Path | str) -> SplitExamples:
        labelled = split not in self.test
        splits = (*self.train, *self.dev, *self.test)
        if split not in splits:
            raise UserError(f"split = {split!r} does not exist in {self.name}. Use one of {', '.join(splits)}.")
        files = _find(self, split, on_disk(directory, "data_dir", "Copy the files to this machine."))
        if files[0].suffix == readers.PARQUET:
            target = "label" if labelled else None
            return self._read([readers.read_table(path) for path in files], self.hub, target, "idx")
        if not labelled:
            return self._read([readers.read_table(files[0])], self.tsv_test or self.tsv, None, self.tsv_key)
        table = readers.read_table(files[0], header=not self.width)
        if self.width and len(table.columns) != self.width:
            raise UserError(
                f"{table.location(1)} has {len(table.columns)} columns, but GLUE's file has {_described(self, split)}. "
                "Use the file as GLUE distributes it."
            )
        return self._read([table], self.tsv, self.tsv_label, None)

    def _read(
        self, tables: Sequence[DataTable], columns: Sequence[str], target: str | None, index: str | None
    ) -> SplitExamples:
        """Read examples from tables. columns, target, index: the columns of the texts, the labels and the keys."""
        examples: list[Example] = []
        skipped: Counter[str] = Counter()
        for table in tables:
            to_label = self._to_label(table, target)
            for row, (location, cells, why) in enumerate(table.select([*columns, *filter(None, (target, index))])):
                if cells is None and target:
                    skipped[why] += 1
                    continue
                if cells is None:
                    raise UserError(f"{location} has {why}, but a test set needs every row. Correct the row.")
                texts = [fields.text(cell, location, name) for cell, name in zip(cells, columns, strict=False)]
                key = str(cells[-1]) if index else str(row)
                label = to_label(cells[len(texts)], location) if target else None
                examples.append(Example(key, texts[0], texts[1] if len(texts) > 1 else None, label))
        if not examples:
            raise UserError(f"{tables[0].name} holds no example. Download the file again.")
        return SplitExamples(examples, dict(skipped))

    def _to_label(self, table: DataTable, column: str | None) -> Callable[[Any, str], Label]:
        """Return a function (cell, location) -> label for a column; without a column, labels are None."""
        if column is None:
            return lambda cell, location: None
        if self.range:
            return lambda cell, location: fields.number(cell, location, column, self.range)
        index = {label: i for i, label in enumerate(self.labels)}
        index |= {name: index[label] for name, label in self.aliases.items()}
        names = table.names.get(column, tuple(self.aliases))

        def to_index(cell: Any, location: str) -> int:
            return fields.label_index(fields.label_name(cell, location, column, names), index, location, column)

        return to_index


def _find(task: GlueTask, split: str, root: Path) -> list[Path]:
    """Find the files of a split in `root` or in the task's folder inside it: one TSV, or one or more Parquet files."""
    inside = sorted(root.iterdir()) if root.is_dir() else []
    folders = {name.casefold() for name in (*task.folders, task.name)}
    hub = split.replace("dev", "validation")  # Hugging Face's name
    for directory in (*(path for path in inside if path.name.casefold() in folders and path.is_dir()), root):
        tsv = [path for name in (f"{split}.tsv", *task.files) if (path := directory / name).is_file()]
        patterns = (f"{hub}.parquet", f"{hub}-[0-9]*.parquet", f"{hub}/*.parquet")
        parquet = [path for pattern in patterns for path in sorted(directory.glob(pattern))]
        if tsv and parquet:
            raise UserError(f"{directory} holds both {tsv[0].name} and {parquet[0].name}. Keep one.")
        if tsv or parquet:
            return tsv[:1] or parquet
    raise UserError(
        f"{root} holds no {split} split of {task.folders[0]}. Add GLUE's {task.folders[0]}/{split}.tsv"
        f" ({_described(task, split)}) or Hugging Face's {task.name}/{hub}-00000-of-00001.parquet."
    )


def _described(task: GlueTask, split: str) -> str:
    text, label = ", ".join(task.tsv), task.tsv_label
    if split in task.test:
        return f"a header with the columns {task.tsv_key}, {', '.join(task.tsv_test or task.tsv)}"
    if task.width:
        return (
            f"{task.width} columns without a header: the label in column {label} and the text in column {text}, "
            "counted from 0"
        )
    return f"a header with the columns {text}, {label}"


_TASKS = (
    GlueTask(
        name="cola",
        pair=False,
        folders=("CoLA",),
        metrics=("matthews",),
        tsv=("3",),
        tsv_label="1",
        tsv_test=("sentence",),
        width=4,
        hub=("sentence",),
        aliases={"unacceptable": "0", "acceptable": "1"},
    ),
    GlueTask(
        name="sst2",
        pair=False,
        folders=("SST-2", "SST"),
        tsv=("sentence",),
        hub=("sentence",),
        aliases={"negative": "0", "positive": "1"},
    ),
    GlueTask(
        name="mrpc",
        folders=("MRPC",),
        metrics=("accuracy", "f1"),
        tsv=("#1 String", "#2 String"),
        tsv_label="Quality",
        aliases={"not_equivalent": "0", "equivalent": "1"},
        symmetric=True,
    ),
    GlueTask(
        name="stsb",
        folders=("STS-B", "STS"),
        metrics=("pearson", "spearman"),
        tsv_label="score",
        kind="regression",
        labels=(),
        range=(0.0, 5.0),
        symmetric=True,
    ),
    GlueTask(
        name="qqp",
        folders=("QQP",),
        metrics=("accuracy", "f1"),
        tsv=("question1", "question2"),
        tsv_label="is_duplicate",
        tsv_key="id",
        hub=("question1", "question2"),
        aliases={"not_duplicate": "0", "duplicate": "1"},
    ),
    GlueTask(
        name="mnli",
        folders=("MNLI",),
        tsv_label="gold_label",
        hub=("premise", "hypothesis"),
        dev=("dev_matched", "dev_mismatched"),
        test=("test_matched", "test_mismatched"),
        **_NLI_LABELS,
    ),
    GlueTask(
        name="qnli", folders=("QNLI",), tsv=("question", "sentence"), hub=("question", "sentence"), **_ENTAILMENT_LABELS
    ),
    GlueTask(name="rte", folders=("RTE",), **_ENTAILMENT_LABELS),
    GlueTask(name="wnli", folders=("WNLI",), aliases={"not_entailment": "0", "entailment": "1"}),
    GlueTask(
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
GLUE: dict[str, GlueTask] = {task.name: task for task in _TASKS}


# By test set: its file in the zip, and its number of rows on the leaderboard.
FILES: dict[str, tuple[str, int]] = {
    "cola": ("CoLA.tsv", 1063),
    "sst2": ("SST-2.tsv", 1821),
    "mrpc": ("MRPC.tsv", 1725),
    "stsb": ("STS-B.tsv", 1379),
    "qqp": ("QQP.tsv", 390_965),
    "mnli_matched": ("MNLI-m.tsv", 9796),
    "mnli_mismatched": ("MNLI-mm.tsv", 9847),
    "qnli": ("QNLI.tsv", 5463),
    "rte": ("RTE.tsv", 3000),
    "wnli": ("WNLI.tsv", 146),
    "ax": ("AX.tsv", 1104),
}
Wnli = Literal["majority", "predicted"]
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a zip's oldest date, so that equal predictions make equal files


def write_submission(
    path: Path, predictions: Mapping[str, Mapping[str, int | float]], *, wnli: Wnli = "majority"
) -> None:
    """Write the zip; raises UserError for predictions that are not labels.

    predictions: {test set: {key of an example: label index or number}}, which `check_files` and `check_rows` accept.
    wnli: "majority" predicts WNLI's most common label, as papers do, and needs no predictions.
    """
    tables = dict(predictions)
    if wnli == "majority":
        tables["wnli"] = dict.fromkeys(map(str, range(FILES["wnli"][1])), GLUE["wnli"].labels.index("0"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, (file, count) in FILES.items():
            rows = (f"{row}\t{_cell(name, row, tables[name][str(row)])}\n" for row in range(count))
            text = "index\tprediction\n" + "".join(rows)
            archive.writestr(zipfile.ZipInfo(file, _EPOCH), text, zipfile.ZIP_DEFLATED)
    atomic.write_bytes(path, buffer.getvalue())


def check_files(names: Collection[str], wnli: Wnli) -> None:
    """Raise UserError unless `names` are the test sets in FILES; WNLI may be missing if `wnli` is "majority"."""
    if missing := [name for name in FILES if name not in names and not (name == "wnli" and wnli == "majority")]:
        raise UserError(f"the submission lacks predictions for {', '.join(missing)}. Fine-tune on these tasks too.")
    if unknown := sorted(set(names) - set(FILES)):
        raise UserError(f"the submission takes no predictions for {', '.join(unknown)}. Use only {', '.join(FILES)}.")


def check_rows(name: str, keys: Collection[str]) -> None:
    """Raise UserError unless `keys` are "0", "1", …, one per row of the test set."""
    count = FILES[name][1]
    present, expected = Counter(keys), Counter(str(index) for index in range(count))
    if differing := [*(expected - present), *(present - expected)]:
        some = ", ".join(differing[:5]) + (", …" if len(differing) > 5 else "")
        raise UserError(
            f"the submission needs {count:,} rows of {name}, each once; {some} are missing, repeated or unknown. "
            "Predict GLUE's own test set."
        )


def _cell(name: str, row: int, value: int | float) -> str:
    """Return a prediction as text: the label at index `value`, or a number. Raises UserError for other values.

    A model's predictions may be -1 below its thresholds, or not finite.
    """
    task = GLUE[name.partition("_")[0]]
    if task.range and math.isfinite(value):
        return f"{min(max(value, task.range[0]), task.range[1]):.6f}"
    if value not in range(len(task.labels)):
        expected = f"a label's index, for {', '.join(task.labels)}" if task.labels else "a finite number"
        raise UserError(f"the prediction of row {row} of {name} is {value}, not {expected}. Use another model.")
    return task.labels[int(value)]
