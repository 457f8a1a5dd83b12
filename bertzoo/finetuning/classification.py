"""Fine-tuning on tasks that label a text, a pair of texts or every word: GLUE's and the user's own."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax

from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import Location
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.finetuning.labels import teacher_logits
from bertzoo.finetuning.scoring import LabelSplit
from bertzoo.finetuning.task_kind import Say, TaskKind, TaskSplits, changed_field, tell_skipped
from bertzoo.heads import SequenceClassification, TokenClassification
from bertzoo.heads.labels import PROBLEMS
from bertzoo.tasks.encode import encode
from bertzoo.tasks.task import Example, Task, double_unordered

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

    def check_files(self) -> None:
        for split in (*self.task.train, *self.task.dev):
            self.task.read(split, self.recipe.data_dir)
        self.check_test_file()

    @property
    def notes(self) -> dict[str, str | int]:
        return {"scale": str(self.recipe.scale)}

    def add_teacher(
        self,
        objective: Any,
        train: LabelSplit,
        dev: Mapping[str, Any],
        teacher: Location,
        mesh: jax.sharding.Mesh,
        tell: Say,
    ) -> tuple[LabelSplit, Mapping[str, Any], dict[str, Any]]:
        logits, record = teacher_logits(teacher, self.recipe, self.task, train.examples, mesh, tell)
        return replace(train, teacher=logits), dev, record

    def constant(self, train: LabelSplit) -> int | None:
        """Return the index of the most common training label, the lowest on a tie, for `wnli` = "majority"."""
        if self.recipe.wnli != "majority":
            return None
        counts = Counter(example.label for example in train.examples)
        return max(range(len(self.task.labels)), key=lambda label: counts[label])

    def read_splits(self, tokenizer: Tokenizer, padding: int, tell: Say) -> TaskSplits:
        recipe, task = self.recipe, self.task
        read = {split: task.read(split, recipe.data_dir) for split in (*task.train, *task.dev)}
        examples = self.draw_subset([example for split in task.train for example in read[split].examples])
        if recipe.double_unordered:
            examples = double_unordered(examples)

        def encoded(examples: list[Example]) -> LabelSplit:
            rows = encode(examples, tokenizer, recipe.max_length, task.kind, padding)
            return LabelSplit(task=task, examples=examples, rows=rows, scale=recipe.scale)

        train, dev = encoded(examples), {name: encoded(read[name].examples) for name in task.dev}
        skipped = {name: split.skipped for name, split in read.items() if split.skipped}
        tell_skipped(skipped, "rows", tell)
        splits = {"train": train, **dev}
        for name, split in splits.items():
            cut = int(split.rows.cut.sum())
            more = f", {cut:,} of them cut to {recipe.max_length} tokens" if cut else ""
            tell(f"{name}: {len(split.rows):,} examples{more}")
        return train, dev, skipped, {name: len(split.rows) for name, split in splits.items()}
