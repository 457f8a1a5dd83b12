"""Build a task from the user's own files (TSV, CSV, JSONL, Parquet or CoNLL); the config names their columns."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bertzoo.core.config import check_range, plain
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import on_disk
from bertzoo.tasks import entities, fields, readers
from bertzoo.tasks.entities import Aggregation, Entity, Scheme
from bertzoo.tasks.metrics import METRICS
from bertzoo.tasks.readers import DataTable
from bertzoo.tasks.squad import Answer, Question, check_questions
from bertzoo.tasks.squad_tasks import SpanTask, SplitName
from bertzoo.tasks.task import Example, Kind, SplitExamples, Task

_SPLITS = {"train": ("train",), "dev": ("dev", "validation"), "test": ("test",)}  # usual names without suffix
_USUAL = (".csv", ".tsv", ".jsonl", readers.PARQUET)  # their suffixes; the first two may lack a header
_DIGITS = 100  # most digits of a label that is sorted as an integer
LABEL_FIELDS = ("text_a", "text_b", "label", "labels", "separator", "metrics")
QUESTION_FIELDS = ("question", "context", "answer", "start", "id", "unanswerable")
ENTITY_FIELDS = ("spans", "scheme", "aggregation")
_NOT_LABELS = (*QUESTION_FIELDS, "negatives", *ENTITY_FIELDS)
# By kind, the fields that do not apply to it.
_FOREIGN = {
    "classification": (*_NOT_LABELS, "separator"),
    "multi_label": _NOT_LABELS,
    "regression": (*_NOT_LABELS, "separator", "labels"),
    "span": (*LABEL_FIELDS, "negatives", "unlabelled", *ENTITY_FIELDS),
    "texts": ("labels", "separator", "metrics", "unlabelled", *QUESTION_FIELDS, *ENTITY_FIELDS),
    "tokens": (*_NOT_LABELS, "unlabelled", "separator", "text_b"),
    "entities": ("text_b", "label", "separator", "negatives", "unlabelled", *QUESTION_FIELDS),
}


@dataclass(frozen=True, kw_only=True)
class HeadColumns:
    """An item of the config list [[own.heads]]: one of a model's heads, and the columns of its labels."""

    name: str  # name of the head in outputs and scores
    weight: float = 1.0  # weight of its loss
    kind: Literal["classification", "multi_label", "regression", "entities"] = "classification"  # target, as in [own]
    label: str = "label"  # column of the label
    labels: tuple[str, ...] = ()  # all labels, as in [own]
    separator: str = ""  # text between the labels in a cell (multi_label)
    metrics: tuple[str, ...] = ()  # scores to report; unset: as in [own]
    spans: str = "spans"  # column of the lists of spans (entities)
    scheme: Scheme = "BIO"  # tags of the words of an entity (entities)
    aggregation: Aggregation = "first"  # the tokens that give a word its tag (entities)

    def __post_init__(self) -> None:
        check_range(self, "weight", above=0, advice="Use 1, or remove the head.")
        self.apply(CustomFiles())

    def apply(self, files: "CustomFiles") -> "CustomFiles":
        """Return `files` with the columns of this head alone; raises ConfigError if they contradict its kind."""
        return replace(files, heads=(), **{name: getattr(self, name) for name in _HEAD_FIELDS})


_HEAD_FIELDS = tuple(field.name for field in dataclasses.fields(HeadColumns) if field.name not in ("name", "weight"))


@dataclass(frozen=True, kw_only=True)
class CustomFiles:
    """The config table [own]: your task's files, and the names of their text and label columns."""

    # target: a label of a text or pair, any number of labels (multi_label), a number, a label for every word (tokens),
    # spans of a text (entities), an answer in a text (span), or vectors of texts (texts, with head = "embedding")
    kind: Kind = "classification"
    # training file, relative to data_dir. If none of the three files is set, those of data_dir with the usual names:
    # train, dev or validation, and test, each .csv, .tsv, .jsonl or .parquet
    train: str = ""
    dev: str = ""  # development file, if there is one
    test: str = ""  # test file, if there is one; it may lack labels
    unlabelled: str = ""  # file of more training texts; the teacher labels those without a label
    text_a: str = "text"  # column of the text; for tokens a list of words, or words separated by spaces
    text_b: str = ""  # column of the second text, if examples are pairs
    label: str = "label"  # column of the label; for tokens one per word
    # all labels in the order of the logits; unset: those of train, sorted. For multi_label without a separator, the
    # columns of 0 and 1; for entities their labels
    labels: tuple[str, ...] = ()
    separator: str = ""  # text between the labels in a cell of the column `label`, such as ";" (multi_label)
    # scores to report; unset: accuracy, pearson (regression), entity_f1 (tokens), or all (multi_label, entities)
    metrics: tuple[str, ...] = ()
    header: bool = True  # whether a .tsv or .csv begins with column names; if not, columns are called 0, 1, and so on
    question: str = "question"  # column of the question (span)
    context: str = "context"  # column of the text that holds the answer (span)
    answer: str = "answer"  # column of the answer, a text or a list of texts; the first is the target (span)
    start: str = ""  # column of the character at which an answer starts; unset: its first occurrence (span)
    id: str = ""  # column of the question's name; unset: the row's number (span)
    negatives: tuple[str, ...] = ()  # columns of texts that resemble text_b and are no partners of text_a (texts)
    unanswerable: bool = False  # an empty answer means that there is none, as in SQuAD 2.0 (span)
    # column of the lists of spans, each with start, end and label, or of the tags in a CoNLL file (entities)
    spans: str = "spans"
    scheme: Scheme = "BIO"  # tags of the words of an entity, BIO or BIOES (entities)
    # a word has the tag of its first token, its surest (max) or all (average); simple: a token is a word (entities)
    aggregation: Aggregation = "first"
    # several heads on one model, each with its columns; leave `kind` and the columns of labels above unset then
    heads: tuple[HeadColumns, ...] = ()

    def __post_init__(self) -> None:
        for name in ("labels", "metrics", "negatives", "heads"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # hashable, also if Python gave lists
        if self.heads:
            self._check_heads()
        if changed := [name for name in _FOREIGN[self.kind] if getattr(self, name) != getattr(CustomFiles, name)]:
            value = plain(getattr(self, changed[0]))
            raise ConfigError(f"{changed[0]} = {value!r} does not apply to kind = {self.kind!r}. Remove {changed[0]}.")
        if self.kind == "multi_label" and not self.separator:
            self._check_flag_columns()
        columns = {"span": ("question", "context", "answer"), "entities": ("text_a", "spans")}.get(
            self.kind, ("text_a", "text_b", "label")
        )
        for first, second in itertools.combinations([name for name in columns if getattr(self, name)], 2):
            if getattr(self, first) == getattr(self, second):
                raise ConfigError(
                    f"{first} and {second} are both {getattr(self, first)!r}. Name two different columns."
                )
        if self.negatives and not self.text_b:
            raise ConfigError(f"negatives = {list(self.negatives)} need the partners of the texts. Set text_b.")
        names = [name for name in (self.train, self.dev, self.test) if name]
        if not self.header and (files := [name for name in names if not name.endswith((".tsv", ".csv"))]):
            raise ConfigError(
                f"header = false applies only to .tsv and .csv files, not to {files[0]}. Remove the key header."
            )
        if len(set(self.labels)) < len(self.labels) or (len(self.labels) == 1 and self.kind != "entities"):
            raise ConfigError(
                f"labels = {list(self.labels)} are not two or more different labels. Name at least two, each once."
            )
        if unknown := [name for name in self.metrics if name not in METRICS[self.kind]]:
            available = ", ".join(METRICS[self.kind])
            raise ConfigError(f"metrics = {unknown} do not apply to kind = {self.kind!r}. Use {available}.")

    def _check_heads(self) -> None:
        if len(self.heads) == 1:
            raise ConfigError(f"heads has only {self.heads[0].name!r}. Add another, or set its keys in [own].")
        if changed := [name for name in _HEAD_FIELDS if getattr(self, name) != getattr(CustomFiles, name)]:
            raise ConfigError(
                f"{changed[0]} = {getattr(self, changed[0])!r} does not apply beside heads. Move it there."
            )
        if len(ways := {head.aggregation for head in self.heads if head.kind == "entities"}) > 1:
            raise ConfigError(f"heads have aggregation = {' and '.join(sorted(ways))}. Use one for all entities.")
        for head in self.heads:
            head.apply(self)  # raises if the other keys do not suit it

    def _check_flag_columns(self) -> None:
        if not self.labels:
            raise ConfigError(
                "kind = 'multi_label' needs labels or a separator. Name in labels the columns that hold 0 or 1, or set "
                f"separator to the text between the labels in the column {self.label!r}."
            )
        if self.label != CustomFiles.label:
            raise ConfigError(
                f"label = {self.label!r} applies only with a separator; without one, labels = {list(self.labels)} are "
                "the columns. Set separator, or remove label."
            )
        if twice := {self.text_a, self.text_b} & {*self.labels}:
            raise ConfigError(f"the column {min(twice)!r} is both in labels and in text_a or text_b. Name another.")

    @property
    def _targets(self) -> tuple[str, ...]:
        """Columns that hold the labels: a column of 0 and 1 for each label, or the column `label` alone."""
        if self.kind == "entities":
            return (self.spans,)
        return self.labels if self.kind == "multi_label" and not self.separator else (self.label,)

    @property
    def columns(self) -> dict[str, Any]:
        """All fields but the names of files, by name. A saved model stores these to read similar files."""
        hidden = (*_SPLITS, "unlabelled", *([] if self.heads else ["heads"]))  # models without heads lack the key
        return {name: value for name, value in plain(self).items() if name not in hidden}

    def task(self, directory: Path | str) -> Task:
        """Return the task of the files in `directory`. If `labels` is empty, the labels are those in the training file.

        The labels of a task with entities are the tags of words.

        Raises ConfigError if `kind` is "span", or `metrics` has "f1" but there are not two labels. Raises UserError if
        the labels cannot be read.
        """
        if self.kind == "texts":
            raise ConfigError('kind = "texts" trains vectors, not labels. Set head = "embedding", or use another kind.')
        if self.kind == "span":
            raise ConfigError(f"kind = {self.kind!r} has questions, not labels. Use a kind with labels.")
        labels = self.labels
        if not labels and self.kind != "regression":
            labels = _labels_of(self, str(directory), _stamp(_folder(directory) / self.train))
        if self.kind == "entities":
            labels = entities.tags_of(labels, self.scheme)
        metrics = self.metrics or tuple(METRICS[self.kind])[: None if self.kind in ("multi_label", "entities") else 1]
        if "f1" in metrics and len(labels) != 2:
            raise ConfigError(
                f"metrics = {list(metrics)} has f1, which needs two labels, but there are {len(labels)}. Use f1_macro."
            )
        train, dev, test = ((split,) if getattr(self, split) else () for split in _SPLITS)
        return Task(
            name="own",
            kind=self.kind,
            metrics=metrics,
            read=lambda split, directory: self.read(split, directory, labels),
            labels=labels,
            pair=bool(self.text_b),
            train=(*train, "unlabelled") if train and self.unlabelled else train,
            dev=dev,
            test=test,
        )

    def with_usual_files(self, directory: str) -> "CustomFiles":
        """Return a copy that names the files in `directory` with usual names, or self if it names a file already.

        Raises UserError if a split has two such files.
        """
        if not directory or any(getattr(self, split) for split in _SPLITS):
            return self
        root, suffixes, files = _folder(directory), _USUAL[: None if self.header else 2], {}
        for split, stems in _SPLITS.items():
            names = [f"{stem}{suffix}" for stem in stems for suffix in suffixes]
            present = [name for name in names if (root / name).is_file()]
            if len(present) > 1:
                raise UserError(
                    f"{directory} holds {present[0]} and {present[1]}, so the file of the split {split} is ambiguous. "
                    "Remove one, or name every file: --own.train=FILE --own.dev=FILE."
                )
            files[split] = "".join(present)
        return replace(self, **files)

    def open(self, split: str, directory: Path | str) -> DataTable:
        """Return the table in the file of `split`, a field's name; raises UserError if the split has no file."""
        if not (name := getattr(self, split, "")):
            splits = ", ".join(s for s in _SPLITS if getattr(self, s))
            raise UserError(
                f"there is no file for the split {split}{f', only for {splits}' if splits else ''}. Name a "
                f"file with {'--input' if split == 'test' else f'--own.{split}'}=FILE"
                f"{'.' if splits else f', or a --data_dir that holds {split}.csv.'}"
            )
        return readers.read_table(_folder(directory) / name, header=self.header)

    def _read_labels(self, directory: Path | str) -> tuple[str, ...]:
        """Return the class names that the training file declares, or else the labels in its rows, sorted."""
        table = self.open("train", directory)
        if self.kind == "entities":
            rows = table.valid_rows([self.text_a, self.spans])
            if not (labels := {span.label for location, row in rows for span in self._spans(row, location)[1]}):
                raise UserError(f"{table.name} holds no entity in the column {self.spans!r}. Add some.")
            return tuple(sorted(labels))
        if names := table.names.get(self.label):
            return names
        labels = {
            fields.label_name(label, location, self.label)
            for location, (cell,) in table.valid_rows([self.label])
            for label in self._items(cell, location)
        }
        if not labels:
            raise UserError(f"{table.name} holds no example with a label in the column {self.label!r}. Add rows.")
        if len(labels) < 2:
            raise UserError(
                f"{table.name} has only the label {', '.join(labels)!r} in the column {self.label!r}. Add examples of "
                "another label."
            )

        def order(label: str) -> tuple[int, int, str]:
            """Sort integers by value, before other labels."""
            integer = label.removeprefix("-").isdecimal() and len(label) <= _DIGITS
            return (0, int(label), label) if integer else (1, 0, label)

        return tuple(sorted(labels, key=order))

    def _items(self, cell: Any, location: str) -> list[Any]:
        """Return the labels in a cell: any number (multi_label), one label per word (tokens), or a single label."""
        if self.kind == "tokens":
            return fields.listed(cell, location, self.label)
        return fields.separated(cell, self.separator, location, self.label) if self.separator else [cell]

    def _spans(self, row: Sequence[Any], location: str) -> tuple[str, tuple[Entity, ...]]:
        """Return the text in a row, and its entities. row: the text and its spans, or words and their tags (CoNLL)."""
        if not isinstance(row[0], list):
            text = fields.nonblank(row[0], location, self.text_a)
            return text, entities.read_spans(row[1], text, location, self.spans)
        words, tags = (
            [fields.nonblank(cell, location, name) for cell in fields.listed(cells, location, name)]
            for cells, name in zip(row, (self.text_a, self.spans), strict=True)
        )
        if len(tags) != len(words):
            raise UserError(f"{location} has {len(words)} words, but {len(tags)} tags. Give one tag for each word.")
        return entities.join_words(words, tags, location)

    def read(self, split: str, directory: Path | str, labels: Sequence[str] = ()) -> SplitExamples:
        """Return a split's examples; raises UserError naming a row. labels: as in Task."""
        table = self.open(split, directory)
        columns = [self.text_a, *filter(None, [self.text_b]), *self.negatives]
        texts = len(columns)
        optional = split in ("test", "unlabelled")  # these may lack labels
        vectors = self.kind == "texts"  # the label is the similarity, if the file has the column
        if not (optional or vectors) or not {*table.columns}.isdisjoint(self._targets):
            columns += self._targets
        names = table.names.get(self.label, ())
        index = {label: i for i, label in enumerate(labels)}
        entity_labels = dict.fromkeys(entities.labels_of(labels), 0)
        # In Hugging Face's test splits, -1 stands for no label, unless it is a label or one of several numbers.
        hides = bool(names) or self.kind == "multi_label" or (self.kind == "classification" and "-1" not in labels)
        if optional and self.kind == "regression":
            hides = all(_minus_one(row[-1]) for _, row in table.valid_rows(columns) if row[-1] not in (None, ""))
        examples = []
        for number, (location, row) in enumerate(table.valid_rows(columns)):
            targets = row[texts:]
            # With a separator, an empty cell is a list of no label.
            empty = all(
                cell is None or (cell == "" and not self.separator) or (hides and _minus_one(cell)) for cell in targets
            )
            missing = not targets or (optional and not vectors and empty)

            def to_index(cell: Any, location: str = location) -> int:
                name = fields.label_name(cell, location, self.label, names)
                return fields.label_index(name, index, location, self.label)

            if self.kind == "entities":
                untagged = ["O"] * len(row[0]) if isinstance(row[0], list) else []
                text, spans = self._spans([row[0], untagged if missing else row[-1]], location)
                for span in spans:
                    fields.label_index(span.label, entity_labels, span.location, self.spans)
                examples.append(Example(str(number), text, None, None if missing else spans))
                continue
            if self.kind == "tokens":
                cells = fields.listed(row[0], location, self.text_a)
                words = tuple(fields.nonblank(word, location, self.text_a) for word in cells)
                tags = None if missing else tuple(map(to_index, self._items(targets[0], location)))
                if tags is not None and len(tags) != len(words):
                    raise UserError(
                        f"{location} has {len(words)} words in {self.text_a!r}, but {len(tags)} labels in "
                        f"{self.label!r}. Give one label for each word."
                    )
                examples.append(Example(str(number), " ".join(words), None, tags, words))
                continue
            first, *rest = (fields.nonblank(row[i], location, columns[i]) for i in range(texts))
            if missing:
                label = None
            elif self.kind in ("regression", "texts"):
                label = fields.number(targets[0], location, self.label)
            elif self.separator:
                true = {labels[to_index(item)] for item in self._items(targets[0], location)}
                label = tuple(int(name in true) for name in labels)
            elif self.kind == "multi_label":
                label = tuple(int(fields.flag(cell, location, key)) for cell, key in zip(targets, labels, strict=True))
            else:
                label = to_index(targets[0])
            second = rest.pop(0) if self.text_b else None
            examples.append(Example(str(number), first, second, label, negatives=tuple(rest)))
        if not examples:
            raise UserError(f"{table.name} holds no example. Add rows.")
        if vectors and len(columns) > texts and not self.text_b:
            raise UserError(
                f"{table.name} has a similarity for each row in the column {self.label!r}, but no second text. Set "
                "own.text_b to its column, or own.label to another name."
            )
        if self.kind == "multi_label" and split == "train":
            flags = [example.label for example in examples]
            if never := [
                label for label, column in zip(labels, zip(*flags, strict=True), strict=True) if 1 not in column
            ]:
                raise UserError(
                    f"{table.name} has no example with the label {never[0]!r}. Add examples with this label, or remove "
                    "the label from own.labels."
                )
        return SplitExamples(examples, {})


@functools.lru_cache(maxsize=16)  # the runs of a sweep share their files, which are slow to read
def _labels_of(task: CustomFiles, directory: str, stamp: Any) -> tuple[str, ...]:
    """Return the labels in a training file. stamp: the file's size and time of change."""
    return task._read_labels(directory)


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        return path.stat().st_size, path.stat().st_mtime_ns
    return None


def _minus_one(cell: Any) -> bool:
    return cell == -1 and not isinstance(cell, bool)


def _folder(directory: Path | str) -> Path:
    return on_disk(directory, "data_dir", "Copy the files to this machine and name the copy.")


def question_task(files: CustomFiles) -> SpanTask:
    """Return the question answering task with the files and columns that the config table [own] names."""
    read = functools.partial(read_question_set, files)
    return SpanTask(name="own", nulls=files.unanswerable, read=read)


def read_question_set(files: CustomFiles, split: SplitName, directory: Path | str) -> SplitExamples:
    """Return the questions of a split; raises UserError naming file and line.

    Without the column `own.start`, an answer starts at its first occurrence in the paragraph. An answer that does not
    occur has the start None, and its question is scored but not trained on. A test set may lack answers.
    """
    table = files.open(split, directory)
    hidden = split == "test" and files.answer not in table.columns
    columns = [files.question, files.context, *([] if hidden else [files.answer, *filter(None, [files.start])])]
    columns += filter(None, [files.id])
    questions, ambiguous = [], 0
    for number, (location, cells) in enumerate(table.valid_rows(columns)):
        row = dict(zip(columns, cells, strict=True))
        context = fields.nonblank(row[files.context], location, files.context)
        text = fields.nonblank(row[files.question], location, files.question)
        name = row[files.id] if files.id else number
        key = str(name) if type(name) is int else fields.nonblank(name, location, files.id)
        answers = () if hidden else _answers(files, row, context, location)
        if not (answers or files.unanswerable or split == "test"):
            raise UserError(
                f"{location} has no answer in the column {files.answer!r}. Add an answer, remove the row, or set "
                "own.unanswerable if questions may have no answer."
            )
        if answers and not files.start and (start := answers[0].start) is not None:
            ambiguous += context.find(answers[0].text, start + 1) >= 0
        impossible = not answers and files.unanswerable
        questions.append(Question(key, text, context, answers, impossible, context, location))
    return SplitExamples(check_questions(questions, table.name), ambiguous=ambiguous, hidden=hidden)


def _answers(files: CustomFiles, row: dict[str, Any], context: str, location: str) -> tuple[Answer, ...]:
    """Return a table row's answers; raises UserError if the numbers of answers and of starts differ."""
    texts = [fields.text(cell, location, files.answer) for cell in _as_list(row[files.answer])]
    if not any(text.strip() for text in texts):
        return ()
    if not files.start:
        starts = ((text.strip(), context.find(text.strip())) for text in texts if text.strip())
        return tuple(Answer(text, None if start < 0 else start) for text, start in starts)
    starts = [_start(cell, location, files.start) for cell in _as_list(row[files.start])]
    if len(starts) != len(texts):
        raise UserError(
            f"{location} has {len(texts)} answers in {files.answer!r}, but {len(starts)} in {files.start!r}. Give "
            "one start for each answer."
        )
    return tuple(Answer(text, start) for text, start in zip(texts, starts, strict=True))


def _as_list(cell: Any) -> Sequence[Any]:
    if cell is None:
        return []
    return cell if isinstance(cell, list | tuple) else [cell]


def _start(cell: Any, location: str, column: str) -> int:
    number = fields.number(cell, location, column)
    if not number.is_integer():
        raise UserError(
            f"{location} has {cell!r} in the column {column!r}, which is not a character position. Use a whole number "
            "from 0."
        )
    return int(number)
