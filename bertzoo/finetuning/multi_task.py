"""A task of several heads on one model, such as intent and slots: every text has a label for each of them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.finetuning.entities import EntitySplit, EntityTask
from bertzoo.finetuning.labels import LabelTask
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Predictions, Purpose, RowForm, Split, TaskKind
from bertzoo.heads.multi_task import MultiTaskHead, NamedHead, check_names
from bertzoo.runs.runner import Outputs
from bertzoo.tasks.entities import TextWindows
from bertzoo.tasks.rows import Slot
from bertzoo.tasks.task import Example, SplitExamples

if TYPE_CHECKING:
    from bertzoo.finetuning.evaluate import TaskModel


@dataclass(frozen=True, kw_only=True)
class MultiTaskSplit(Split):
    """Texts of a split with the labels of each head.

    heads: the same texts for each head, by name. windows: the rows, if a head finds entities; else they are the texts.
    Heads that label texts read only the first window of a text.
    """

    heads: Mapping[str, Any]
    windows: TextWindows | None

    @property
    def summary(self) -> str:
        heads = [*self.heads.values()]
        return next((split for split in heads if isinstance(split, EntitySplit)), heads[0]).summary

    @property
    def deciding(self) -> tuple[str, ...]:
        return tuple(f"{name}_{metric}" for name, split in self.heads.items() for metric in split.deciding)

    @property
    def digest(self) -> str:
        return hashlib.sha256("".join(split.digest for split in self.heads.values()).encode()).hexdigest()

    def _head_slot(self, split: Split, slot: Slot) -> tuple[Slot, np.ndarray]:
        """Return the slot of a head for a slot of rows, and which of its rows count."""
        if self.windows is None or isinstance(split, EntitySplit):
            return slot, np.ones(len(slot.rows), bool)
        windows = [self.windows.windows[row] for row in slot.rows]
        texts, firsts = ([getattr(window, name) for window in windows] for name in ("text", "first"))
        return slot._replace(rows=np.array(texts, np.int64)), np.array(firsts, np.int64) == 0

    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]:
        """Return the arrays of a planned batch, by name; a head's labels and weights have its name in front."""
        rows = self.rows.batch(slot, batch_size)
        shared = ("input_ids", "token_type_ids", "attention_mask", "row_weight")
        batch = {name: rows[name] for name in shared}
        for name, split in self.heads.items():
            head_slot, counts = self._head_slot(split, slot)
            arrays = split.batch(head_slot, batch_size)
            arrays["row_weight"][: len(counts)] *= counts
            batch |= {f"{name}/{key}": array for key, array in arrays.items() if key not in shared[:3]}
        return batch

    def head_outputs(
        self, name: str, slots: Sequence[Slot], outputs: Sequence[Outputs]
    ) -> tuple[list[Slot], list[Outputs]]:
        """Return the slots and the outputs of a head as its split reads them."""
        pairs: list[tuple[Slot, Outputs]] = []
        for slot, output in zip(slots, outputs, strict=True):
            head_slot, counts = self._head_slot(self.heads[name], slot)
            logits = output[f"{name}_logits"][: len(counts)][counts]
            pairs.append((head_slot._replace(rows=head_slot.rows[counts]), {"logits": logits}))
        return [slot for slot, _ in pairs], [output for _, output in pairs]

    def predict(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> dict[str, Any]:
        return {name: split.predict(*self.head_outputs(name, slots, outputs)) for name, split in self.heads.items()}

    def scores(self, predictions: Mapping[str, Any]) -> dict[str, float]:
        return {
            f"{name}_{metric}": value
            for name, split in self.heads.items()
            for metric, value in split.scores(predictions[name]).items()
        }

    def distinct(self, predictions: Mapping[str, Any]) -> set[Any]:
        """Return the distinct predictions of the head that has the fewest."""
        return min((split.distinct(predictions[name]) for name, split in self.heads.items()), key=len)


@dataclass(frozen=True)
class MultiTask(TaskKind):
    """Several tasks of the same texts, each with a head of its own. task: a task for each of own.heads."""

    task: tuple[LabelTask, ...]

    @classmethod
    def of(cls, recipe: Finetune) -> Self:
        """Return the tasks that a config names in own.heads."""
        check_names([head.name for head in recipe.own.heads])
        tasks = []
        for head in recipe.own.heads:
            head_recipe = replace(recipe, own=head.apply(recipe.own))
            kind = EntityTask if head.kind == "entities" else LabelTask
            tasks.append(kind(head_recipe, head_recipe.own.task(recipe.data_dir)))
        return cls(recipe, tuple(tasks))

    def with_recipe(self, recipe: Finetune) -> Self:
        return self.of(recipe)

    @classmethod
    def named(cls, model: "TaskModel", name: str, data_dir: str) -> Self:
        if name != "own":
            raise ConfigError(f"{model.path} has several heads for the task own, not for {name}. Use --input.")
        return cls(model.recipe, tuple(head.task_class.named(head, "own", data_dir) for head in model.heads))  # pyright: ignore[reportArgumentType] (tasks with labels)

    @classmethod
    def unnamed(cls, model: "TaskModel") -> Self:
        return cls(model.recipe, tuple(head.task_class.unnamed(head) for head in model.heads))  # pyright: ignore[reportArgumentType] (tasks with labels)

    @property
    def name(self) -> str:
        return "own"

    @property
    def dev(self) -> tuple[str, ...]:
        return self.task[0].dev

    def data_sets(self, split: str) -> tuple[str, ...]:
        return self.task[0].data_sets(split)

    def check(self) -> None:
        for task in self.task:
            task.check()

    @property
    def head(self) -> MultiTaskHead:
        tasks = zip(self.recipe.own.heads, self.task, strict=True)
        return MultiTaskHead(
            heads=tuple(NamedHead(name=head.name, weight=head.weight, head=task.head) for head, task in tasks)
        )

    def read(self, name: str, directory: str) -> SplitExamples:
        """Read a data set once for each head; an example's label is the tuple of theirs."""
        rows = zip(*(task.read(name, directory).examples for task in self.task), strict=True)
        return SplitExamples([row[0]._replace(label=tuple(example.label for example in row)) for row in rows])

    def check_labels(self, name: str, read: SplitExamples) -> None:
        for index, task in enumerate(self.task):
            task.check_labels(name, SplitExamples(_of_head(read.examples, index)))

    def encode(
        self, examples: Sequence[Example], name: str, form: RowForm, purpose: Purpose = "score"
    ) -> MultiTaskSplit:
        heads: dict[str, Any] = {}
        for index, (head, task) in enumerate(zip(self.recipe.own.heads, self.task, strict=True)):
            labelled = examples if purpose == "predict" else _of_head(examples, index)
            heads[head.name] = task.encode(labelled, name, form, purpose)
        in_windows = [split for split in heads.values() if isinstance(split, EntitySplit)]
        windows = in_windows[0].windows if in_windows else None
        rows = (in_windows or [*heads.values()])[0].rows
        return MultiTaskSplit(examples=examples, rows=rows, heads=heads, windows=windows)

    def decode(self, split: MultiTaskSplit, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> Predictions:
        """Return the predictions of each head by its name; a record has them in `heads`."""
        heads: dict[str, Predictions] = {}
        for name, task in zip(split.heads, self.task, strict=True):
            heads[name] = task.decode(split.heads[name], *split.head_outputs(name, slots, outputs))
        records = []
        for example, *row in zip(split.examples, *(head.records for head in heads.values()), strict=True):
            bare = ({key: value for key, value in record.items() if key != "index"} for record in row)
            records.append({"index": example.key, "heads": dict(zip(heads, bare, strict=True))})
        return Predictions(
            {name: head.values for name, head in heads.items()},
            {name: head.probabilities for name, head in heads.items()},
            np.any([head.cut for head in heads.values()], axis=0),
            records,
            [*dict.fromkeys(chain.from_iterable(head.counts for head in heads.values()))],
        )


def _of_head(examples: Sequence[Example], index: int) -> list[Example]:
    return [example._replace(label=example.label[index]) for example in examples]  # pyright: ignore[reportIndexIssue, reportOptionalSubscript]
