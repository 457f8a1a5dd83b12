"""A fine-tuned model, ready to say something of examples: of a run's best seed or another, or out of any directory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bertzoo import config
from bertzoo.convert import directory, huggingface
from bertzoo.convert.pretrained import Pretrained
from bertzoo.data.vocabulary import Tokenizer
from bertzoo.errors import ConfigError, UserError
from bertzoo.finetune.judge import Judge, Judged, Predictor, Split
from bertzoo.finetune.labels import relabelled
from bertzoo.finetune.seeds import MODEL, SCORES
from bertzoo.finetune.settings import Finetune
from bertzoo.kinds import class_of
from bertzoo.models import Compute
from bertzoo.models.tasks import SequenceClassification, TokenClassification
from bertzoo.objectives.labelled import LabelledObjective
from bertzoo.places import is_url
from bertzoo.tasks.encode import encode
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.rows import Rows, bucket_lengths
from bertzoo.tasks.task import Example, Kind, Task
from bertzoo.train import sharding

CONFIG = "config.toml"


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
class Trained:
    """path: as it was named. recipe: its run's, the default one where it is of no run; named: its task, empty where
    that is not known; scale: what its numbers are multiplied by.
    """

    path: Path
    pretrained: Pretrained
    tokenizer: Tokenizer
    kind: Kind
    recipe: Finetune
    named: str
    scale: float
    max_length: int

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
        """The task that it was trained on, or another by its name, with labels from a run's own files; ConfigError."""
        name = name or self.named
        if not name or (name == "own" and self.recipe.task != "own"):
            raise ConfigError(f"{self.path} does not say on which task it was trained: name one with --task")
        return task_of(replace(self.recipe, task=name, data_dir=data_dir or self.recipe.data_dir))

    def of(self, task: Task) -> "Trained":
        """The same with the labels of a task in its order; raises ConfigError where they are not those of its head."""
        if task.kind != self.kind:
            raise ConfigError(f"{self.path} is fine-tuned for {self.kind}, but {task.name} is {task.kind}")
        return replace(self, pretrained=relabelled(self.pretrained, task, str(self.path)))

    def rows(self, examples: Sequence[Example]) -> Rows:
        """The rows of examples as the model reads them."""
        return encode(examples, self.tokenizer, self.max_length, self.kind)

    def predict(self, examples: Sequence[Example], batch_size: int = 0) -> Predictions:
        """What the model says of examples, the labels of which it does not look at; rows make no difference to it."""
        rows = self.rows([example._replace(label=None) for example in examples])
        objective, params = self._objective()
        predictor = Predictor(
            lambda params, batch: objective.logits(params, batch, None), _mesh(), self._size(batch_size)
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
        judge = Judge(task, objective, _mesh(), batch_size=self._size(batch_size), lengths=lengths, scale=self.scale)
        return judge(params, splits)

    def _objective(self) -> tuple[LabelledObjective, Any]:
        compute = replace(self.recipe.compute, vocab_multiple=1)
        _, params = self.pretrained.module()
        module = self.pretrained.head.build(self.pretrained.model, compute)
        return LabelledObjective(model=module, numbers=self.kind == "regression"), params

    def _lengths(self, rows: Sequence[Rows]) -> tuple[int, ...]:
        return bucket_lengths(rows, self.recipe.buckets, self.max_length)

    def _size(self, batch_size: int) -> int:
        return batch_size or self.recipe.batch_size


def softmax(logits: np.ndarray) -> np.ndarray:
    """The distributions of the last axis, in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def is_finetuned(name: str | Path) -> bool:
    """Whether a name is of a fine-tuning run, a seed of one or a model's directory, not of a pretraining run."""
    if is_url(str(name)):
        return False
    path = Path(name)
    marks = (directory.RESULTS, directory.MODEL, SCORES, huggingface.CONFIG)
    return any((path / mark).is_file() for mark in marks) or class_of(path / CONFIG) is Finetune


def task_of(recipe: Finetune) -> Task:
    """The task of labels, numbers or tags that a config names; raises ConfigError where there is none of that name."""
    if recipe.task == "own":
        return recipe.own.task(recipe.data_dir)
    if recipe.task not in GLUE:
        raise ConfigError(f"task = {recipe.task!r} is unknown here; the tasks are {', '.join(GLUE)} and own")
    return GLUE[recipe.task]


def load(path: Path, seed: int | None = None) -> Trained:
    """The model of a run's best seed or of the one named, of the directory of a seed, or of a directory of a model.

    Raises UserError where there is none, and for one without a head of a task.
    """
    folder, recipe = _folder(path, seed)
    found = directory.read(folder)
    kind = _kind(found, path)
    if found.tokenizer is None:
        raise ConfigError(f"{path} holds no tokenizer, without which no text can be read")
    longest = recipe.max_length if recipe else int(found.source.get("max_length", Finetune().max_length))
    return Trained(
        path=path,
        pretrained=found,
        tokenizer=found.tokenizer,
        kind=kind,
        recipe=recipe or Finetune(compute=Compute()),
        named=recipe.task if recipe else str(found.source.get("task", "")),
        scale=float(found.source.get("scale", 1.0)),
        max_length=min(longest, found.model.max_positions),
    )


def _folder(path: Path, seed: int | None) -> tuple[Path, Finetune | None]:
    """Where the model lies, and the config of its run where it is in one."""
    if class_of(path / CONFIG) is Finetune:
        recipe = config.load(Finetune, [path / CONFIG])
        if seed is None and not (path / directory.RESULTS).is_file():
            raise UserError(f"{path} is unfinished: run the same bertzoo finetune again, or name a seed with --seed")
        if seed is None:
            return path, recipe
        folder = path / f"seed-{seed}" / MODEL
        if not folder.is_dir():
            have = sorted(each.parent.name.removeprefix("seed-") for each in path.glob(f"seed-*/{MODEL}"))
            raise UserError(f"--seed={seed}: {path} has a model of the seeds {', '.join(have) or 'none yet'}")
        return folder, recipe
    if seed is not None:
        raise UserError(f"--seed={seed} is for a run of several seeds, which {path} is not")
    folder = path / MODEL if (path / SCORES).is_file() else path
    if folder.name == MODEL and class_of(run := folder.parent.parent / CONFIG) is Finetune:
        return folder, config.load(Finetune, [run])
    return folder, None


def _kind(found: Pretrained, path: Path) -> Kind:
    head = found.head
    if isinstance(head, TokenClassification):
        return "tokens"
    if "span" in head.kind:
        raise UserError(
            f"{path} has a head that finds answers in a text, as of SQuAD, and only labels, numbers and tags are taken"
        )
    if not isinstance(head, SequenceClassification):
        raise UserError(f"{path} has no head of a task but {head.kind}: fine-tune it first")
    if head.problem_type == "multi_label_classification":
        raise UserError(f"{path} gives every text several labels or none, which no task here does")
    return "regression" if head.problem_type == "regression" or len(head.labels) == 1 else "classification"


def _mesh() -> jax.sharding.Mesh:
    return sharding.make_mesh(sharding.Mesh(data=1), jax.local_devices()[:1])
