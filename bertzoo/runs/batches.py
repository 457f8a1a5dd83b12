"""What a run reads: the batches of its stages and of its held-out text, from one tokenised corpus."""

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.data.background import ahead
from bertzoo.data.batch import shapes
from bertzoo.data.corpus.corpus import Corpus, Split
from bertzoo.data.pack import Plan, plan
from bertzoo.data.pipeline import Batch, Batches, prefetch
from bertzoo.data.rng import fold
from bertzoo.runs.transfer_config import Recipe

PREFETCH = 4
Own = Callable[[int], np.ndarray]  # batch size -> the rows of it that are wanted


def everything(batch_size: int) -> np.ndarray:
    """Every row of a batch."""
    return np.arange(batch_size)


def example(recipe: Recipe, index: int, rows: int = 1) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of a batch of so many rows of a stage, which the recipe alone says."""
    stage, sentence = recipe.stages[index], recipe.objective.sentence != "none"
    found = shapes(rows, stage.max_length, stage.max_predictions, sentence=sentence)
    return {name: jax.ShapeDtypeStruct(*described) for name, described in found.items()}


class Feed:
    """Batches of a recipe; the pack plans are computed once and kept in `plans`. Raises as the data room does.

    workers: the processes that make the batches of training; 0 stands for a thread of this one. first: the number of
    the first stage, where others came before it in another run: no two draw alike.
    """

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        plans: Path,
        warn: Callable[[str], None],
        *,
        workers: int = 0,
        first: int = 0,
    ):
        if corpus.tokenizer.vocab_size > recipe.model.vocab_size:
            raise ConfigError(
                f"the tokenizer has {corpus.tokenizer.vocab_size} entries, "
                f"more than model.vocab_size = {recipe.model.vocab_size}"
            )
        self.recipe, self.corpus, self._plans, self._warn = recipe, corpus, plans, warn
        self._workers, self._first = workers, first
        self._made: dict[tuple[Split, int], Plan] = {}

    def plan(self, split: Split, max_length: int) -> Plan:
        """The rows of a split at a length; what there is to warn of is said once."""
        if (split, max_length) not in self._made:
            made = plan(
                self.corpus,
                split,
                self.recipe.data.packing,
                sentence=self.recipe.objective.sentence,
                max_length=max_length,
                seed=self.recipe.seed,
                directory=self._plans,
            )
            self._made[split, max_length] = made
            if split == "train":
                for warning in made.warnings:
                    self._warn(warning)
        return self._made[split, max_length]

    def of(self, index: int, split: Split) -> Batches:
        """The batches of a stage; every stage draws its own order and masks."""
        stage = self.recipe.stages[index]
        return Batches(
            self.corpus,
            split,
            self.plan(split, stage.max_length),
            self.recipe.data.masking,
            max_length=stage.max_length,
            max_predictions=stage.max_predictions,
            seed=fold(self.recipe.seed, self._first + index),
        )

    def check(self) -> None:
        """Make the plans of every stage; raises CorpusError where one has too few rows for a batch."""
        for index, stage in enumerate(self.recipe.stages):
            self.of(index, "train").check(stage.batch_size)
            self.of(index, "heldout")

    def train(self, index: int, row: int, own: Own = everything) -> Iterator[Batch]:
        """The batches of a stage from the one that begins with `row`, made ahead of their use.

        own(batch size): the rows of a batch that are wanted.
        """
        stage, batches = self.recipe.stages[index], self.of(index, "train")
        rows, start = own(stage.batch_size), row // stage.batch_size
        if self._workers:
            return ahead(batches, stage.batch_size, start, stage.steps, rows, workers=self._workers)
        return prefetch(lambda step: batches.batch(step, stage.batch_size, rows), start, stage.steps, depth=PREFETCH)

    def heldout(self, index: int, rows: int, shards: int, own: Own = everything) -> Iterator[Batch]:
        """A fixed random choice of at least `rows` held-out rows, or all where there are not more, always masked alike.

        `shards`: the number of parts a batch is cut into over the devices; `own` as in `train`.
        """
        stage, batches = self.recipe.stages[index], self.of(index, "heldout")
        size = min(stage.batch_size // stage.accumulate, -(-min(rows, batches.rows) // shards) * shards)
        if rows >= batches.rows or size > batches.rows:
            return (batches.sequential(step, size, own(size)) for step in range(batches.steps(size)))
        # Never beyond the first pass over the rows, which would count some of them twice.
        return (batches.batch(step, size, own(size)) for step in range(min(-(-rows // size), batches.rows // size)))

    def describe(self, index: int, row: int, rows: int) -> list[str]:
        """In words, each of the `rows` records of the batch that begins with `row`."""
        return self.of(index, "train").describe(row // rows, rows)

    def example(self, index: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of a batch of one row of a stage."""
        return example(self.recipe, index)
