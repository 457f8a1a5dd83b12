"""The user's own files as a task: TSV, CSV, JSONL, Parquet or a word a line, their columns named in the config."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import on_disk
from bertzoo.tasks import fields, readers
from bertzoo.tasks.metrics import METRICS
from bertzoo.tasks.readers import Table
from bertzoo.tasks.task import Example, Kind, Label, Read, Task

_SPLITS = ("train", "dev", "test")
_DIGITS = 100  # of a label that is sorted as a number
OF_LABELS = ("text_a", "text_b", "label", "labels", "metrics")
OF_SPANS = ("question", "context", "answer", "start", "id", "unanswerable")


@dataclass(frozen=True, kw_only=True)
class Own:
    """Classification of a text or of two, regression, a label for every word of a text (`tokens`), or questions whose
    answers are parts of a text (`span`, read by questions.py), each with columns of its own.
    """

    kind: Kind = "classification"
    train: str = ""  # files, relative to data_dir; a split without one is not there
    dev: str = ""
    test: str = ""  # may lack the label
    text_a: str = "text"  # for `tokens` a list of words, or words separated by spaces
    text_b: str = ""  # unset: there is one text
    label: str = "label"  # for `tokens` as many as there are words
    labels: tuple[str, ...] = ()  # in the order of the logits; unset: those of train, sorted
    metrics: tuple[str, ...] = ()  # unset: the first that metrics.py has for the kind
    header: bool = True  # without it columns of .tsv and .csv are called 0, 1, and so on
    question: str = "question"  # the columns of `span`
    context: str = "context"
    answer: str = "answer"  # a text, or a list of them, of which the first is learnt
    start: str = ""  # the character at which an answer starts; unset: where it occurs first
    id: str = ""  # unset: rows are counted
    unanswerable: bool = False  # an empty answer says that there is none, as in SQuAD 2.0

    def __post_init__(self) -> None:
        others = OF_LABELS if self.kind == "span" else OF_SPANS
        if strange := [name for name in others if getattr(self, name) != getattr(Own, name)]:
            raise ConfigError(
                f"{strange[0]} = {getattr(self, strange[0])!r} is not of kind = {self.kind!r}: leave it out"
            )
        columns = ("question", "context", "answer") if self.kind == "span" else ("text_a", "text_b", "label")
        named = [name for name in columns if getattr(self, name)]
        for first, second in itertools.combinations(named, 2):
            if getattr(self, first) == getattr(self, second):
                raise ConfigError(
                    f"{first} and {second} are both the column {getattr(self, first)!r}: name two columns"
                )
        if not self.header and (files := [name for name in (self.train, self.dev, self.test) if _heads(name)]):
            raise ConfigError(f"header = false is for .tsv and .csv, which {files[0]} is not: leave it out")
        if self.kind == "tokens" and self.text_b:
            raise ConfigError(f"text_b = {self.text_b!r} is a second text where kind = 'tokens' has one: leave it out")
        if self.kind == "regression" and self.labels:
            raise ConfigError(f"labels = {list(self.labels)} are classes where kind = 'regression' has numbers")
        if len(set(self.labels)) < len(self.labels) or len(self.labels) == 1:
            raise ConfigError(f"labels = {list(self.labels)} must be two or more, each once")
        if unknown := [name for name in self.metrics if name not in METRICS[self.kind]]:
            known = ", ".join(METRICS[self.kind])
            raise ConfigError(f"metrics = {unknown} are none of kind = {self.kind!r}: known are {known}")

    def task(self, directory: Path | str) -> Task:
        """The task of the files in a directory, read for its labels where they are not given; raises UserError."""
        if self.kind == "span":
            raise ConfigError(f"kind = {self.kind!r} has questions, not labels")
        labels = self.labels or (() if self.kind == "regression" else self._found(directory))
        metrics = self.metrics or tuple(METRICS[self.kind])[:1]
        if "f1" in metrics and len(labels) != 2:
            raise ConfigError(f"metrics = {list(metrics)} have the F1 of two classes, and there are {len(labels)}")

        def read(split: str, directory: Path | str) -> Read:
            return self._read(split, directory, labels)

        train, dev, test = ((split,) if getattr(self, split) else () for split in _SPLITS)
        return Task(
            name="own",
            kind=self.kind,
            metrics=metrics,
            read=read,
            labels=labels,
            pair=bool(self.text_b),
            train=train,
            dev=dev,
            test=test,
        )

    def open(self, split: str, directory: Path | str) -> Table:
        """The file of a split; raises UserError where there is none."""
        if not (name := getattr(self, split, "")):
            given = ", ".join(s for s in _SPLITS if getattr(self, s)) or "none"
            raise UserError(f"there is no file of the split {split}, of {given}: name one in {split}")
        root = on_disk(directory, "data_dir", "copy the files to this machine and name the copy")
        return readers.read(root / name, header=self.header)

    def _found(self, directory: Path | str) -> tuple[str, ...]:
        table = self.open("train", directory)
        if names := table.names.get(self.label):
            return names
        found = {
            fields.spelt(cell, place, self.label)
            for place, (given,) in rows(table, [self.label])
            for cell in (fields.items(given, place, self.label) if self.kind == "tokens" else [given])
        }
        if not found:
            raise UserError(f"{table.name} holds no example")
        if len(found) < 2:
            raise UserError(f"{table.name} has the label {', '.join(found)!r} alone in the column {self.label!r}")
        return tuple(sorted(found, key=lambda label: (0, int(label), label) if _is_integer(label) else (1, 0, label)))

    def _read(self, split: str, directory: Path | str, labels: Sequence[str]) -> Read:
        table = self.open(split, directory)
        index = {label: place for place, label in enumerate(labels)}
        texts = [self.text_a, *filter(None, [self.text_b])]
        hidden = split == "test"  # a label may be missing
        wanted = [*texts, *([] if hidden and self.label not in table.columns else [self.label])]
        examples = []
        for nth, (place, row) in enumerate(rows(table, wanted)):
            given = row[len(texts)] if len(row) > len(texts) else None
            if self.kind == "tokens":
                words = tuple(
                    fields.filled(word, place, self.text_a) for word in fields.items(row[0], place, self.text_a)
                )
                label = None if hidden and _missing(given) else self._tags(given, len(words), table, index, place)
                examples.append(Example(str(nth), " ".join(words), None, label, words))
                continue
            filled = [fields.filled(cell, place, column) for cell, column in zip(row, texts, strict=False)]
            label = None if hidden and _missing(given) else self._label(given, table, index, place)
            examples.append(Example(str(nth), filled[0], filled[1] if self.text_b else None, label))
        if not examples:
            raise UserError(f"{table.name} holds no example")
        return Read(examples, {})

    def _label(self, cell: Any, table: Table, index: dict[str, int], place: str) -> Label:
        if self.kind == "regression":
            return fields.number(cell, place, self.label)
        spelt = fields.spelt(cell, place, self.label, table.names.get(self.label, ()))
        return fields.chosen(spelt, index, place, self.label)

    def _tags(self, cell: Any, count: int, table: Table, index: dict[str, int], place: str) -> Label:
        names = table.names.get(self.label, ())
        tags = [fields.spelt(tag, place, self.label, names) for tag in fields.items(cell, place, self.label)]
        if len(tags) != count:
            raise UserError(f"{place} has {count} words in {self.text_a!r} and {len(tags)} labels in {self.label!r}")
        return tuple(fields.chosen(tag, index, place, self.label) for tag in tags)


def rows(table: Table, columns: Sequence[str]) -> Iterator[tuple[str, Sequence[Any]]]:
    """(place, cells of the columns) of every row; raises UserError for one that is malformed."""
    for row in table.select(columns):
        place = table.place(row.number)
        if row.cells is None:
            raise UserError(f"{place} has {row.why}: mend it or leave it out")
        yield place, row.cells


def _heads(file: str) -> bool:
    """Whether a file is named whose columns have names of their own, or numbers whatever its first line says."""
    return bool(file) and not file.endswith((".tsv", ".csv"))


def _missing(cell: Any) -> bool:
    return cell is None or cell == "" or (cell == -1 and not isinstance(cell, bool))


def _is_integer(label: str) -> bool:
    """Whether it is one to sort by; of thousands of digits Python makes none."""
    return label.removeprefix("-").isdecimal() and len(label) <= _DIGITS
