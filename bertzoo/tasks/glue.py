"""GLUE (Wang et al. 2018): nine tasks and the diagnostic set, from GLUE's TSVs, Hugging Face's Parquet files or TFDS.

Which of the first two it is the directory says; `tfds:glue` names the last. Labels are matched by name, since the
sources number them differently. In TSVs a quotation mark is one, and malformed rows of train and dev are skipped and
counted, as ELECTRA's code skips those that are too short; of those that are too long it would cut the text at the tab.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk
from bertzoo.data.sources import tfds
from bertzoo.tasks import fields, readers
from bertzoo.tasks.layouts import LAYOUTS, Layout
from bertzoo.tasks.readers import Table
from bertzoo.tasks.task import Example, Label, Read, Task


class _Columns(NamedTuple):
    texts: tuple[str, ...]
    label: str | None
    key: str | None


@dataclass(frozen=True)
class _Reader:
    """`Task.read` of a layout."""

    layout: Layout

    def __call__(self, split: str, directory: Path | str) -> Read:
        layout, labelled = self.layout, split not in self.layout.test
        splits = (*layout.train, *layout.dev, *layout.test)
        if split not in splits:
            raise UserError(f"{layout.name} has no split {split!r} but {', '.join(splits)}")
        hub = _Columns(layout.hub, "label" if labelled else None, "idx")
        if str(directory).startswith(tfds.PREFIX):
            read = self._gather([readers.dataset(_dataset(layout, str(directory)), _hub_split(split))], hub)
            # A prepared data set is shuffled; `idx` has the order of the files.
            return read._replace(examples=sorted(read.examples, key=lambda example: int(example.key)))
        found = _find(layout, split, on_disk(directory, "data_dir", "copy the files to this machine"))
        if found[0].suffix == readers.PARQUET:
            return self._gather([readers.read(path) for path in found], hub)
        if not labelled:
            test = _Columns(layout.tsv_test or layout.tsv, None, layout.tsv_key)
            return self._gather([readers.read(found[0])], test)
        table = readers.read(found[0], header=not layout.width)
        if layout.width and len(table.columns) != layout.width:
            raise UserError(
                f"{table.place(1)} has {len(table.columns)} columns: {_described(layout, split)} are needed"
            )
        return self._gather([table], _Columns(layout.tsv, layout.tsv_label, None))

    def _gather(self, parts: Sequence[Table], columns: _Columns) -> Read:
        examples: list[Example] = []
        skipped: Counter[str] = Counter()
        wanted = [*columns.texts, *filter(None, (columns.label, columns.key))]
        for table in parts:
            label = self._label(table, columns.label)
            for nth, row in enumerate(table.select(wanted)):
                place = table.place(row.number)
                if row.cells is not None:
                    examples.append(_example(row.cells, columns, place, label, str(nth)))
                elif columns.label:
                    skipped[row.why] += 1
                else:
                    raise UserError(f"{place} has {row.why}, and a test set needs every row: mend it")
        if not examples:
            raise UserError(f"{parts[0].name} holds no example")
        return Read(examples, dict(skipped))

    def _label(self, table: Table, column: str | None) -> Callable[[Any, str], Label]:
        """What makes a label of a cell and its place."""
        layout = self.layout
        if column is None:
            return lambda cell, place: None
        if layout.range:
            return lambda cell, place: fields.number(cell, place, column, layout.range)
        index = {label: place for place, label in enumerate(layout.labels)}
        index |= {name: index[label] for name, label in layout.aliases.items()}
        names = table.names.get(column, layout.hub_names)
        return lambda cell, place: fields.chosen(fields.spelt(cell, place, column, names), index, place, column)


def _example(
    found: Sequence[Any], columns: _Columns, place: str, label: Callable[[Any, str], Label], nth: str
) -> Example:
    texts = [fields.text(cell, place, column) for cell, column in zip(found, columns.texts, strict=False)]
    key = str(found[-1]) if columns.key else nth
    # Where no label is wanted its place may be behind the last cell.
    made = label(found[len(texts)], place) if columns.label else None
    return Example(key, texts[0], texts[1] if len(texts) > 1 else None, made)


def _hub_split(split: str) -> str:
    """What Hugging Face and TFDS call a split."""
    return split.replace("dev", "validation")


def _dataset(layout: Layout, source: str) -> str:
    """The data set of `tfds:glue`, `tfds:glue/cola` or `tfds:glue/cola:2.0.0`."""
    builder, _, rest = source.removeprefix(tfds.PREFIX).partition("/")
    config = rest.partition(":")[0]
    if config not in ("", layout.name):
        raise UserError(f"{source} is the data set of {config} where {layout.name} is asked for: leave /{config} out")
    return f"{builder}/{rest or layout.name}"


def _find(layout: Layout, split: str, root: Path) -> list[Path]:
    """The files of a split, below `root` or in it: one TSV, or Parquet in some pieces."""
    inside = sorted(root.iterdir()) if root.is_dir() else []
    known = {name.casefold() for name in (*layout.folders, layout.name)}
    hub = _hub_split(split)
    for directory in (*(path for path in inside if path.name.casefold() in known and path.is_dir()), root):
        tsv = [path for name in (f"{split}.tsv", *layout.files) if (path := directory / name).is_file()]
        patterns = (f"{hub}.parquet", f"{hub}-[0-9]*.parquet", f"{hub}/*.parquet")
        parquet = [path for pattern in patterns for path in sorted(directory.glob(pattern))]
        if tsv and parquet:
            raise UserError(f"{directory} holds both {tsv[0].name} and {parquet[0].name}: remove one of them")
        if tsv or parquet:
            return tsv[:1] or parquet
    raise UserError(
        f"{root} holds no {split} split of {layout.folders[0]}: put GLUE's {layout.folders[0]}/{split}.tsv"
        f" ({_described(layout, split)}) or Hugging Face's {layout.name}/{hub}-00000-of-00001.parquet there, or name"
        f" {tfds.PREFIX}glue"
    )


def _described(layout: Layout, split: str) -> str:
    text, label = ", ".join(layout.tsv), layout.tsv_label
    if split in layout.test:
        return f"columns {layout.tsv_key} and {', '.join(layout.tsv_test or layout.tsv)} under a header"
    if layout.width:
        return f"{layout.width} columns without a header, of which, from 0, {label} is the label and {text} the text"
    return f"columns {text} and {label} under a header"


def _task(layout: Layout) -> Task:
    return Task(
        name=layout.name,
        kind="regression" if layout.range else "classification",
        metrics=layout.metrics,
        read=_Reader(layout),
        labels=layout.labels,
        aliases=layout.aliases,
        pair=len(layout.tsv) > 1,
        symmetric=layout.symmetric,
        range=layout.range,
        train=layout.train,
        dev=layout.dev,
        test=layout.test,
    )


GLUE: dict[str, Task] = {layout.name: _task(layout) for layout in LAYOUTS}
