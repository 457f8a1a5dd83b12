"""The task of finding entities in raw text of any length: training, scores and predictions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from bertzoo.finetuning.labels import LabelTask
from bertzoo.finetuning.task_kind import Predictions, Purpose, RowForm, Split
from bertzoo.runs.runner import Outputs
from bertzoo.tasks import entities, metrics
from bertzoo.tasks.decision import softmax
from bertzoo.tasks.rows import Slot
from bertzoo.tasks.task import Example, Task

if TYPE_CHECKING:
    from bertzoo.finetuning.evaluate import TaskModel


@dataclass(frozen=True, kw_only=True)
class EntitySplit(Split):
    """Texts of a split as windows.

    tags: for each text, the index of each word's tag; None if unknown. constrained: whether predicted tags must follow
    their scheme; if not, each word has its most probable tag.
    """

    task: Task
    windows: entities.TextWindows
    tags: list[np.ndarray] | None
    aggregation: entities.Aggregation
    constrained: bool

    @property
    def summary(self) -> str:
        return f"{self.size:,} texts, {len(self):,} windows"

    @property
    def deciding(self) -> tuple[str, ...]:
        return self.task.metrics[:1]

    def tagged(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the tags of each text's words and the tags' probabilities, (w,) each."""
        joined = self.windows.join(slots, [softmax(output["logits"]) for output in outputs])
        steps, tagged = entities.legal_steps(self.task.labels), []
        for chances, pieces in zip(joined, self.windows.pieces, strict=True):
            words = entities.by_word(chances, pieces.words, self.aggregation)
            if self.constrained:
                scores = np.log(np.maximum(words, np.finfo(np.float64).tiny))
                tags = entities.best_path(scores, steps, self.task.labels.index(metrics.OUTSIDE))
            else:
                tags = words.argmax(-1)
            tagged.append((tags, np.take_along_axis(words, tags[:, None], -1)[:, 0]))
        return tagged

    def predict(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> list[np.ndarray]:
        return [tags for tags, _ in self.tagged(slots, outputs)]

    def scores(self, predictions: list[np.ndarray]) -> dict[str, float]:
        return metrics.score(self.task, predictions, self.tags)

    def distinct(self, predictions: list[np.ndarray]) -> set[Any]:
        return set(np.concatenate(predictions).tolist())


@dataclass(frozen=True)
class EntityTask(LabelTask):
    """A task whose examples are texts with entities. aggregation: replaces own.aggregation."""

    aggregation: str = ""

    @classmethod
    def unnamed(cls, model: "TaskModel") -> Self:
        return replace(super().unnamed(model), aggregation=model.aggregation)

    def encode(self, examples: Sequence[Example], name: str, form: RowForm, purpose: Purpose = "score") -> EntitySplit:
        """Encode texts; raises UserError for an annotated span that splits a word of the tokenizer."""
        aggregation: Any = self.aggregation or self.recipe.own.aggregation
        pieces = entities.find_words([example.text_a for example in examples], form.tokenizer, aggregation)
        tags = None
        if purpose != "predict":
            tags = [
                entities.tag_words(cast(tuple, example.label), example.text_a, words, self.task.labels)
                for example, words in zip(examples, pieces, strict=True)
            ]
        keys, whole = [example.key for example in examples], aggregation in ("max", "average")
        windows = entities.make_text_windows(keys, pieces, form.tokenizer, form.max_length, form.padding, tags, whole)
        return EntitySplit(
            task=self.task,
            examples=examples,
            rows=windows.rows,
            windows=windows,
            tags=tags,
            aggregation=aggregation,
            constrained=self.recipe.own.kind == "entities",
        )

    def decode(self, split: EntitySplit, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> Predictions:
        """Return for each text its entities, as `entity_records` yields them."""
        values = [
            list(entities.entity_records(example.text_a, pieces, [self.task.labels[tag] for tag in tags], chances))
            for example, pieces, (tags, chances) in zip(
                split.examples, split.windows.pieces, split.tagged(slots, outputs), strict=True
            )
        ]
        records = [{"index": e.key, "entities": value} for e, value in zip(split.examples, values, strict=True)]
        empty = sum(not example.text_a.strip() for example in split.examples)
        return Predictions(values, None, np.zeros(len(values), bool), records, [(empty, "empty")])
