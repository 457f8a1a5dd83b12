"""A fine-tuned model of labels, numbers or tags, ready to say something of examples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.finetuning import saved_model
from bertzoo.finetuning.labels import relabelled
from bertzoo.finetuning.saved_model import SPANS, Kept
from bertzoo.finetuning.scoring import Judge, Judged, Predictor, Split
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Say
from bertzoo.models.tasks import SequenceClassification, TokenClassification
from bertzoo.objectives.labelled import LabelledObjective
from bertzoo.tasks.encode import encode
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.rows import Rows, bucket_lengths
from bertzoo.tasks.squad_tasks import SQUAD
from bertzoo.tasks.task import Example, Kind, Task


class Predictions(NamedTuple):
    """What is said of N examples, in their order.

    values: (N,) places in the labels or numbers or, of tokens, for each example an array with the place of each word's
    tag, -1 where it was cut off. probabilities: (N,C), of tokens those of each word's tag, None for numbers. cut: (N,)
    whether a text was longer than the rows.
    """

    values: Any
    probabilities: Any
    cut: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Trained(Kept):
    """kind: of its task; scale: what its numbers are multiplied by."""

    kind: Kind
    scale: float

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the order of the logits; none of numbers."""
        return () if self.kind == "regression" else self.pretrained.head.labels

    @property
    def pair(self) -> bool:
        """Whether its task, where that is known, has two texts."""
        return bool(self.recipe.own.text_b) if self.named == "own" else self.named in GLUE and GLUE[self.named].pair

    @property
    def range(self) -> tuple[float, float] | None:
        """The limits of the numbers of its task."""
        return GLUE[self.named].range if self.named in GLUE else None

    def task(self, name: str = "", data_dir: str = "") -> Task:
        """The task that it was trained on, or another by name; one's own with the labels of the head. ConfigError."""
        name = name or self.named
        if not name or (name == "own" and self.recipe.task != "own"):
            raise ConfigError(f"{self.path} does not say on which task it was trained: name one with --task")
        if name in SQUAD:
            raise ConfigError(f"{self.path} is fine-tuned for {self.kind}, but {name} has questions")
        own = self.recipe.own
        if name == "own" and not own.labels:
            own = replace(own, labels=self.labels)
        return task_of(replace(self.recipe, task=name, data_dir=data_dir or self.recipe.data_dir, own=own))

    def of(self, task: Task, tell: Say = lambda line: None) -> "Trained":
        """The same with the labels of a task in its order; raises ConfigError where they are not those of its head, and
        tells where only their numbers say which they are.
        """
        if task.kind != self.kind:
            raise ConfigError(f"{self.path} is fine-tuned for {self.kind}, but {task.name} is {task.kind}")
        return replace(self, pretrained=relabelled(self.pretrained, task, str(self.path), tell))

    def rows(self, examples: Sequence[Example]) -> Rows:
        """The rows of examples as the model reads them."""
        return encode(examples, self.tokenizer, self.max_length, self.kind, self.padding)

    def predict(self, examples: Sequence[Example], batch_size: int = 0) -> Predictions:
        """What the model says of examples, the labels of which it does not look at; rows make no difference to it."""
        rows = self.rows([example._replace(label=None) for example in examples])
        objective, params = self._objective()
        predictor = Predictor(
            lambda params, batch: objective.logits(params, batch, None), saved_model.mesh(), self.size(batch_size)
        )
        slots, logits = predictor(params, rows, self._lengths([rows]), 1.0)
        if self.kind == "regression":
            numbers = rows.restore(slots, logits)[:, 0].astype(np.float64) * self.scale
            return Predictions(numbers if self.range is None else np.clip(numbers, *self.range), None, rows.cut)
        chances = [softmax(each) for each in logits]
        if self.kind == "tokens":
            tags = rows.restore_words(slots, [each.argmax(-1) for each in chances])
            return Predictions(tags, rows.restore_words(slots, [each.max(-1) for each in chances]), rows.cut)
        whole = rows.restore(slots, chances)
        return Predictions(whole.argmax(-1), whole, rows.cut)

    def judge(self, task: Task, examples: dict[str, list[Example]], batch_size: int = 0) -> Judged:
        """The scores of splits that have labels, as a run's after each epoch; the model is one of the task."""
        splits = {name: Split(found, self.rows(found)) for name, found in examples.items()}
        objective, params = self._objective()
        lengths = self._lengths([split.rows for split in splits.values()])
        judge = Judge(
            task, objective, saved_model.mesh(), batch_size=self.size(batch_size), lengths=lengths, scale=self.scale
        )
        return judge(params, splits)

    def _objective(self) -> tuple[LabelledObjective, Any]:
        module, params = self.module()
        return LabelledObjective(model=module, numbers=self.kind == "regression"), params

    def _lengths(self, rows: Sequence[Rows]) -> tuple[int, ...]:
        return bucket_lengths(rows, self.recipe.buckets, self.max_length)


def softmax(logits: np.ndarray) -> np.ndarray:
    """The distributions of the last axis, in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def task_of(recipe: Finetune) -> Task:
    """The task of labels, numbers or tags that a config names; raises ConfigError where there is none of that name."""
    if recipe.task == "own":
        return recipe.own.task(recipe.data_dir)
    if recipe.task not in GLUE:
        raise ConfigError(f"task = {recipe.task!r} is unknown here; the tasks are {', '.join(GLUE)} and own")
    return GLUE[recipe.task]


def load(path: Path, seed: int | None = None) -> Trained:
    """The model of a run's best seed or of the one named, of the directory of a seed, or of a directory of a model.

    Raises UserError where there is none, and for one without a head of labels, numbers or tags.
    """
    return of(saved_model.read(path, seed))


def of(found: Kept) -> Trained:
    """A model by the head that it has; raises UserError for one without a head of labels, numbers or tags."""
    kind = _kind(found.pretrained, found.path)
    return Trained(**vars(found), kind=kind, scale=float(found.pretrained.source.get("scale", 1.0)))


def _kind(found: Pretrained, path: Path) -> Kind:
    head = found.head
    if isinstance(head, TokenClassification):
        return "tokens"
    if isinstance(head, SPANS):
        raise UserError(
            f"{path} has a head that finds answers in a text, as of SQuAD, and only labels, numbers and tags are taken"
        )
    if not isinstance(head, SequenceClassification):
        raise UserError(f"{path} has no head of a task but {head.kind}: fine-tune it first")
    if head.problem_type == "multi_label_classification":
        raise UserError(f"{path} gives every text several labels or none, which no task here does")
    return "regression" if head.problem_type == "regression" or len(head.labels) == 1 else "classification"
