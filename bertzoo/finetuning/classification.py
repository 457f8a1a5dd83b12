"""Fine-tuning on tasks that label a text, a pair of texts or every word: GLUE's and the user's own."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import Location
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.finetuning.labels import PROBLEMS, teacher_logits
from bertzoo.finetuning.scoring import LabelScorer, LabelSplit, scaled
from bertzoo.finetuning.task_kind import Evaluation, Say, TaskData, TaskKind, changed_field, check_split, tell_skipped
from bertzoo.models.tasks import SequenceClassification, TokenClassification
from bertzoo.objectives.labelled import TEACHER, LabelledObjective
from bertzoo.tasks.encode import encode
from bertzoo.tasks.rows import Slot, bucket_lengths
from bertzoo.tasks.task import Example, Task, double_unordered
from bertzoo.train.step import HostBatch

NUMBER = "number"  # name of a regression's single output
TEXT_ONLY = ("hidden", "pooler")  # options that do not apply to tags of words


@dataclass(frozen=True)
class LabelTask(TaskKind):
    """A fine-tuning task whose examples have labels: a class, a set of classes, a number, or a tag for each word."""

    task: Task
    unit = "examples"

    def __post_init__(self):
        recipe, task = self.recipe, self.task
        if field := changed_field(recipe.squad):
            raise ConfigError(f"squad.{field} applies only to questions, not to {task.name}. Remove it.")
        if not task.train or not task.dev:
            lacking, key = ("development", "dev") if task.train else ("training", "train")
            raise ConfigError(f"task = {task.name} has no {lacking} examples. Set own.{key}.")
        if recipe.wnli == "majority" and (task.name != "wnli" or recipe.alpha < 1):
            conflict = f"alpha = {recipe.alpha}" if task.name == "wnli" else f"task = {task.name}"
            raise ConfigError(
                f'wnli = "majority" applies only to task = wnli without a teacher, not to {conflict}. Remove wnli.'
            )
        if recipe.scale != 1 and task.kind != "regression":
            raise ConfigError(
                f"scale = {recipe.scale} applies only to tasks whose labels are numbers, not to {task.name}. Remove it."
            )
        if task.kind == "tokens" and (field := changed_field(recipe, TEXT_ONLY)):
            raise ConfigError(
                f"{field} applies only to tasks that label texts, but {task.name} labels words. Remove it."
            )
        if recipe.double_unordered and not task.symmetric:
            raise ConfigError(
                "double_unordered applies only to tasks on pairs of texts whose order is irrelevant, not to "
                f"{task.name}. Remove it."
            )

    @property
    def distillable(self) -> bool:
        return self.task.kind != "tokens"

    @property
    def head(self) -> SequenceClassification | TokenClassification:
        recipe, labels = self.recipe, self.task.labels
        if self.task.kind == "tokens":
            return TokenClassification(labels=labels, dropout=recipe.dropout, pooler=False)
        return SequenceClassification(
            labels=labels or (NUMBER,),
            hidden=recipe.hidden,
            dropout=recipe.dropout,
            problem_type=PROBLEMS[self.task.kind],
            pooler=recipe.pooler,
        )

    def objective(self, module: Any) -> LabelledObjective:
        recipe, problem = self.recipe, PROBLEMS[self.task.kind]
        return LabelledObjective(model=module, problem=problem, alpha=recipe.alpha, reduction=recipe.reduction)

    def check_files(self) -> None:
        for split in (*self.task.train, *self.task.dev):
            self.task.read(split, self.recipe.data_dir)
        self.check_test_file()

    def prepare(
        self,
        objective: LabelledObjective,
        tokenizer: Tokenizer,
        padding: int,
        mesh: jax.sharding.Mesh,
        teacher: Location | None,
        tell: Say,
    ) -> TaskData:
        recipe, task = self.recipe, self.task
        train, dev, skipped = self._read(tokenizer, padding, tell)
        splits, size = {"train": train, **dev}, recipe.batch_size
        lengths = bucket_lengths([split.rows for split in splits.values()], recipe.buckets, recipe.max_length)
        tell(f"batches of rows of {', '.join(map(str, lengths))} tokens")
        scorer = LabelScorer(task, objective, mesh, batch_size=size, lengths=lengths, scale=recipe.scale)
        soft_labels = record = None
        if teacher is not None:
            soft_labels, record = teacher_logits(teacher, recipe, task, train.examples, mesh, tell)

        def finish(batch: HostBatch, slot: Slot) -> HostBatch:
            arrays = scaled(dict(batch), recipe.scale)
            if soft_labels is not None:
                arrays[TEACHER] = np.zeros((size, soft_labels.shape[1]), np.float32)
                arrays[TEACHER][: len(slot.rows)] = soft_labels[slot.rows]
            return arrays

        return TaskData(
            rows=len(train.rows),
            batches=self.make_batches(train.rows, len(train.rows), lengths, finish),
            score=lambda params: Evaluation(scorer(params, dev)),
            examples={name: len(split.rows) for name, split in splits.items()},
            skipped=skipped,
            digests={name: split.rows.digest for name, split in splits.items()},
            notes={"scale": str(recipe.scale)},
            teacher=record,
            constant=self._majority(train.examples) if recipe.wnli == "majority" else None,
        )

    def _majority(self, examples: list[Example]) -> int:
        """Return the index of the most common label in the examples, the lowest on a tie."""
        counts = Counter(example.label for example in examples)
        return max(range(len(self.task.labels)), key=lambda label: counts[label])

    def _read(
        self, tokenizer: Tokenizer, padding: int, tell: Say
    ) -> tuple[LabelSplit, dict[str, LabelSplit], dict[str, dict[str, int]]]:
        """Return the training split, the development splits by name, and counts of skipped rows by split and reason."""
        recipe, task = self.recipe, self.task
        self.check_test_file()
        read = {split: task.read(split, recipe.data_dir) for split in (*task.train, *task.dev)}
        examples = self.draw_subset([example for split in task.train for example in read[split].examples])
        if recipe.double_unordered:
            examples = double_unordered(examples)

        def encoded(examples: list[Example]) -> LabelSplit:
            return LabelSplit(examples, encode(examples, tokenizer, recipe.max_length, task.kind, padding))

        train, dev = encoded(examples), {name: encoded(read[name].examples) for name in task.dev}
        skipped = {name: split.skipped for name, split in read.items() if split.skipped}
        tell_skipped(skipped, "rows", tell)
        for name, split in {"train": train, **dev}.items():
            cut = int(split.rows.cut.sum())
            more = f", {cut:,} of them cut to {recipe.max_length} tokens" if cut else ""
            tell(f"{name}: {len(split.rows):,} examples{more}")
            check_split(tokenizer, split.examples, name, tell)
        return train, dev, skipped
