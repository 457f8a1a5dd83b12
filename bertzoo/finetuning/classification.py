"""Tasks with a label for a text, for two, or for every word: GLUE's and the user's own."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.finetuning import teacher as teaching
from bertzoo.finetuning.scoring import Judge, Split, scaled
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Judgement, Lessons, Say, changed, drawn, epochs, look_at_test, tell_skipped
from bertzoo.models.tasks import SequenceClassification, TokenClassification
from bertzoo.objectives.labelled import TEACHER, LabelledObjective
from bertzoo.tasks.encode import encode
from bertzoo.tasks.rows import bucket_lengths
from bertzoo.tasks.task import Example, Task, double_unordered
from bertzoo.train.step import HostBatch

NUMBER = "number"  # the name of a regression's one output
OF_WHOLE = ("hidden", "pooler")  # options without a meaning for labels of words


@dataclass(frozen=True)
class Labelled:
    """A task of labels in a run."""

    recipe: Finetune
    task: Task

    def __post_init__(self):
        if strange := changed(self.recipe.squad):
            raise ConfigError(f"squad.{strange} is for questions, which {self.task.name} does not have: leave it out")
        if not self.task.train or not self.task.dev:
            lacking = "development" if self.task.train else "training"
            raise ConfigError(f"task = {self.task.name} has no {lacking} examples")
        if self.recipe.wnli == "majority" and (self.task.name != "wnli" or self.recipe.alpha < 1):
            other = f"alpha = {self.recipe.alpha}" if self.task.name == "wnli" else f"task = {self.task.name}"
            raise ConfigError(f'wnli = "majority" is for the task wnli without a teacher, and not with {other}')
        if self.recipe.scale != 1 and self.task.kind != "regression":
            raise ConfigError(
                f"scale = {self.recipe.scale} divides numbers, and {self.task.name} has classes: leave it out"
            )
        if self.task.kind == "tokens" and (strange := changed(self.recipe, OF_WHOLE)):
            raise ConfigError(
                f"{strange} is of the head of a whole text, and {self.task.name} labels every word: leave it out"
            )
        if self.recipe.double_unordered and not self.task.symmetric:
            raise ConfigError(
                f"double_unordered is for pairs whose order means nothing, which those of {self.task.name} are not"
            )

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def taught(self) -> bool:
        return self.task.kind != "tokens"

    @property
    def head(self) -> SequenceClassification | TokenClassification:
        recipe, labels = self.recipe, self.task.labels
        if self.task.kind == "tokens":
            return TokenClassification(labels=labels, dropout=recipe.dropout, pooler=False)
        regression = self.task.kind == "regression"
        return SequenceClassification(
            labels=(NUMBER,) if regression else labels,
            hidden=recipe.hidden,
            dropout=recipe.dropout,
            problem_type="regression" if regression else "single_label_classification",
            pooler=recipe.pooler,
        )

    def objective(self, module: Any) -> LabelledObjective:
        return LabelledObjective(
            model=module,
            numbers=self.task.kind == "regression",
            alpha=self.recipe.alpha,
            reduction=self.recipe.reduction,
        )

    def look(self) -> None:
        for split in (*self.task.train, *self.task.dev):
            self.task.read(split, self.recipe.data_dir)
        look_at_test(self.recipe)

    def lessons(
        self,
        objective: LabelledObjective,
        tokenizer: Tokenizer,
        padding: int,
        mesh: jax.sharding.Mesh,
        teacher: Path | None,
        tell: Say,
    ) -> Lessons:
        recipe, task = self.recipe, self.task
        train, dev, skipped = self._read(tokenizer, padding, tell)
        rows, size = train.rows, recipe.batch_size
        lengths = bucket_lengths([rows, *(split.rows for split in dev.values())], recipe.buckets, recipe.max_length)
        tell(f"rows of {', '.join(map(str, lengths))} tokens")
        judge = Judge(task, objective, mesh, batch_size=size, lengths=lengths, scale=recipe.scale)
        theirs = record = None
        if teacher is not None:
            theirs, record = teaching.logits(teacher, recipe, task, train.examples, mesh, tell)

        def batches(seed: int, row: int) -> Iterator[HostBatch]:
            steps = -(-len(rows) // size)
            for slot in epochs(lambda epoch: rows.plan(size, lengths, seed, epoch), steps, row // size):
                batch = scaled(rows.batch(slot, size), recipe.scale)
                if theirs is not None:
                    batch[TEACHER] = np.zeros((size, theirs.shape[1]), np.float32)
                    batch[TEACHER][: len(slot.rows)] = theirs[slot.rows]
                yield batch

        return Lessons(
            rows=len(rows),
            batches=batches,
            judge=lambda params: Judgement(judge(params, dev)),
            examples={"train": len(rows)} | {name: len(split.rows) for name, split in dev.items()},
            skipped=skipped,
            digests={"train": rows.digest} | {name: split.rows.digest for name, split in dev.items()},
            teacher=record,
            notes={"scale": str(recipe.scale)},
            constant=self._majority(train.examples) if recipe.wnli == "majority" else None,
        )

    def _majority(self, examples: list[Example]) -> int:
        """The label that most examples have, the first of those that are as common."""
        counts = Counter(example.label for example in examples)
        return max(range(len(self.task.labels)), key=lambda label: counts[label])

    def _read(
        self, tokenizer: Tokenizer, padding: int, tell: Say
    ) -> tuple[Split, dict[str, Split], dict[str, dict[str, int]]]:
        recipe, task = self.recipe, self.task
        look_at_test(recipe)
        read = {split: task.read(split, recipe.data_dir) for split in (*task.train, *task.dev)}
        examples = drawn(recipe, [example for split in task.train for example in read[split].examples], "examples")
        if recipe.double_unordered:
            examples = double_unordered(examples)

        def split(found: list[Example]) -> Split:
            return Split(found, encode(found, tokenizer, recipe.max_length, task.kind, padding))

        train, dev = split(examples), {name: split(read[name].examples) for name in task.dev}
        skipped = {name: one.skipped for name, one in read.items() if one.skipped}
        tell_skipped(skipped, "rows", tell)
        for name, part in {"train": train, **dev}.items():
            cut = int(part.rows.cut.sum())
            more = f", {cut:,} of them cut to {recipe.max_length} tokens" if cut else ""
            tell(f"{name}: {len(part.rows):,} examples{more}")
        return train, dev, skipped
