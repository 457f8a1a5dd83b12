"""Predict labels, numbers or tags with a fine-tuned model, and score its predictions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertzoo.conversion.pretrained import source_number
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.finetuning.labels import label_order, relabel
from bertzoo.finetuning.saved_model import SavedModel, Unlabelled, load_saved
from bertzoo.finetuning.scoring import LabelSplit
from bertzoo.finetuning.task_kind import Say
from bertzoo.tasks.encode import encode
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.rows import Rows
from bertzoo.tasks.squad_tasks import SQUAD
from bertzoo.tasks.task import Example, Kind, SplitExamples, Task


class Predictions(NamedTuple):
    """Predictions for N examples, in order.

    The contents of `values` and `probabilities` depend on the model's kind:
    classification: label indices (N,); probabilities (N,C) of C labels.
    multi_label: whether each label's probability is above 0.5, (N,C); probabilities (N,C).
    regression: numbers (N,); None.
    tokens: for each example, an array with the tag index of each word; an array with the predicted tags'
    probabilities. The tag index of a word that was cut off is -1.

    cut: (N,) bool, whether the text was cut.
    """

    values: Any
    probabilities: Any
    cut: np.ndarray


@dataclass(frozen=True, kw_only=True)
class LabelModel(SavedModel):
    """A fine-tuned model that predicts labels, numbers or tags of words.

    kind: "classification", "multi_label", "regression" or "tokens". scale: a regression's output times `scale` is the
    predicted number.
    """

    kind: Kind
    scale: float

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the order of the logits; empty for a regression."""
        return () if self.kind == "regression" else self.pretrained.head.labels

    @property
    def pair(self) -> bool:
        """Whether the model's task is known to have two texts per example."""
        if self.task_name == "own":
            return bool(self.recipe.own.text_b)
        return self.task_name in GLUE and GLUE[self.task_name].pair

    @property
    def range(self) -> tuple[float, float] | None:
        """The least and the greatest number that a regression task allows; None if unlimited."""
        return GLUE[self.task_name].range if self.task_name in GLUE else None

    def task(self, name: str = "", data_dir: str = "") -> Task:
        """Return the task `name`, by default the model's own; raises ConfigError for a task without labels.

        If the config lists no labels for the task `own`, the task gets the labels of the model's head.
        """
        name = name or self.task_name
        if not name:
            raise ConfigError(f"{self.path} does not record its task. Name a task with --task.")
        if name in SQUAD:
            raise ConfigError(
                f"{self.path} is fine-tuned for {self.kind}, but {name} has questions. Name a task with labels."
            )
        if name == "own":
            self.check_columns()
            own = self.recipe.own
            own = own if own.labels else replace(own, labels=self.labels)
            return own.task(data_dir or self.recipe.data_dir)
        if name not in GLUE:
            raise ConfigError(f"task = {name!r} is unknown. Use one of {', '.join((*GLUE, 'own'))}.")
        return GLUE[name]

    def for_task(self, task: Task, tell: Say = lambda line: None) -> "LabelModel":
        """Return a copy with outputs in the task's label order.

        Raises ConfigError if the task has other labels or is of another kind.
        """
        if task.kind != self.kind:
            raise ConfigError(
                f"{self.path} is fine-tuned for tasks of kind {self.kind}, but {task.name} is of kind {task.kind}. "
                f"Name a task of kind {self.kind}."
            )
        order = label_order(self.pretrained.head.labels, task, str(self.path), lambda line: None)
        file = self.file
        if file is not None and order is not None:
            file = file.then(lambda outputs: outputs | {"logits": outputs["logits"][..., order]})
        return replace(self, pretrained=relabel(self.pretrained, task, str(self.path), tell), file=file)

    def rows(self, examples: Sequence[Example]) -> Rows:
        """Encode examples as rows of token ids."""
        return encode(examples, self.tokenizer, self.max_length, self.kind, self.padding)

    def predict(self, examples: Sequence[Example], batch_size: int = 0) -> Predictions:
        """Predict labels, numbers or tags; known labels and the batch size do not affect the result."""
        rows = self.rows([example._replace(label=None) for example in examples])
        slots, outputs = self.runner([rows], batch_size).run_all(rows)
        logits = [output["logits"] for output in outputs]
        if self.kind == "regression":
            numbers = rows.restore(slots, logits)[:, 0].astype(np.float64) * self.scale
            return Predictions(numbers if self.range is None else np.clip(numbers, *self.range), None, rows.cut)
        if self.kind == "multi_label":
            whole = rows.restore(slots, logits)
            return Predictions(whole > 0, sigmoid(whole), rows.cut)
        chances = [softmax(batch) for batch in logits]
        if self.kind == "tokens":
            tags = rows.restore_words(slots, [batch.argmax(-1) for batch in chances])
            return Predictions(tags, rows.restore_words(slots, [batch.max(-1) for batch in chances]), rows.cut)
        whole = rows.restore(slots, chances)
        return Predictions(whole.argmax(-1), whole, rows.cut)

    def fit(self, longest: int) -> "LabelModel":
        """Return a copy with rows of at most `longest` tokens."""
        return replace(self, max_length=min(self.max_length, longest))

    def read_examples(
        self, task: Task, split: str, directory: str, tell: Say
    ) -> tuple[dict[str, list[Example]], dict[str, dict[str, int]]]:
        """Return the examples of a split, and the numbers of skipped rows by reason, by the name of the data set.

        Raises UserError if an example has no label.
        """
        read = {part: read_split(task, part, directory, tell) for part in task.parts(split)}
        for part, rows in read.items():
            if unlabelled := sum(example.label is None for example in rows.examples):
                raise Unlabelled(
                    part,
                    f"the {part} set of {task.name} has no label for {unlabelled:,} of its {len(rows.examples):,} "
                    "examples, so it cannot be scored.",
                )
        skipped = {part: rows.skipped for part, rows in read.items() if rows.skipped}
        return {part: rows.examples for part, rows in read.items()}, skipped

    def encode_split(self, task: Task, examples: Sequence[Example], name: str) -> LabelSplit:
        """Encode labelled examples of `task`. Call this method on a model from `for_task`. name: the split's name."""
        return LabelSplit(task=task, examples=examples, rows=self.rows(examples), scale=self.scale)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis, in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return the sigmoid of each logit, in float64."""
    return np.exp(-np.logaddexp(0, -logits.astype(np.float64)))


def read_split(task: Task, split: str, directory: str, tell: Say) -> SplitExamples:
    """Read a split from `directory`; report through `tell` how many rows are skipped and why."""
    rows = task.read(split, directory)
    for reason, count in rows.skipped.items():
        tell(f"{split}: skipped {count} rows ({reason})")
    return rows


def load_label_model(path: Path, seed: int | None = None) -> LabelModel:
    """Load a fine-tuned model as a LabelModel. path, seed: as in `saved_model.load_saved`."""
    return label_model(load_saved(path, seed))


def label_model(model: SavedModel) -> LabelModel:
    """Convert a saved model to a LabelModel; raises UserError unless its head predicts labels, a number or tags."""
    head = model.pretrained.head
    if head.task_kind == "span":
        raise UserError(f"{model.path} answers questions and predicts no labels, numbers or tags. Name another model.")
    if not head.task_kind:
        raise UserError(
            f"{model.path} has a head of kind {head.kind}, not the head of a task. Fine-tune the model first."
        )
    scale = source_number(model.pretrained.source, "scale", 1.0)
    return LabelModel(**vars(model), kind=head.task_kind, scale=scale)
