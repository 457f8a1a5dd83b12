"""Build the batches of a run's stages and of its held-out text from a tokenised corpus."""

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.data.batch import array_shapes
from bertzoo.data.corpus.reader import Corpus, Split
from bertzoo.data.mask import LinearShare
from bertzoo.data.pack import RowPlan, plan_rows
from bertzoo.data.pipeline import Batch, Batches, parallel_batches, prefetch
from bertzoo.data.rng import fold
from bertzoo.runs.configs import Recipe

PREFETCH = 4
OwnRows = Callable[[int], np.ndarray]  # batch size -> indices of the rows that this process reads


def all_rows(batch_size: int) -> np.ndarray:
    """Return the indices of all rows of a batch: 0 to `batch_size` - 1."""
    return np.arange(batch_size)


def batch_shapes(recipe: Recipe, index: int, rows: int = 1) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shape and dtype of each array in a batch of `rows` rows of training stage `index`."""
    stage, sentence = recipe.stages[index], recipe.objective.sentence != "none"
    arrays = array_shapes(rows, stage.max_length, stage.max_predictions, sentence=sentence)
    return {name: jax.ShapeDtypeStruct(*array) for name, array in arrays.items()}


class RunBatches:
    """Training and held-out batches of a run with the config `recipe`.

    plans: folder that caches row plans (which tokens make up each row).
    warn: receives each warning about the rows of the training split.
    workers: processes that build the training batches; 0 builds them in a thread.
    first: number added to a stage's index in the seeds of its row order and masks. A pruning run, which is a series of
    training runs, passes the number of stages before this run, so that no two of its stages use the same seeds.

    Raises ConfigError if the tokenizer has more entries than model.vocab_size.
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
                f"the tokenizer of {corpus.address} has {corpus.tokenizer.vocab_size} entries, more than "
                f"model.vocab_size = {recipe.model.vocab_size}. Raise model.vocab_size."
            )
        self.recipe, self.corpus, self._plans, self._warn = recipe, corpus, plans, warn
        self._workers, self._first = workers, first
        self._by_length: dict[tuple[Split, int], RowPlan] = {}

    def plan(self, split: Split, max_length: int) -> RowPlan:
        """Return which tokens of a split make up each row of at most `max_length` tokens.

        The first call for the training split with a new `max_length` passes warnings about these rows to `warn`.
        """
        if (split, max_length) not in self._by_length:
            rows = plan_rows(
                self.corpus,
                split,
                self.recipe.data.packing,
                sentence=self.recipe.objective.sentence,
                max_length=max_length,
                seed=self.recipe.seed,
                directory=self._plans,
            )
            self._by_length[split, max_length] = rows
            if split == "train":
                for warning in rows.warnings:
                    self._warn(warning)
        return self._by_length[split, max_length]

    def stage(self, index: int, split: Split) -> Batches:
        """Return the batches of training stage `index` from a split; every stage has its own row order and masks."""
        stage = self.recipe.stages[index]
        shares = stage.masking_shares if split == "train" else None
        return Batches(
            self.corpus,
            split,
            self.plan(split, stage.max_length),
            self.recipe.data.masking,
            max_length=stage.max_length,
            max_predictions=stage.max_predictions,
            seed=fold(self.recipe.seed, self._first + index),
            share=LinearShare(shares[0], shares[1], stage.steps) if shares else None,
        )

    def check_rows(self) -> None:
        """Plan the rows of all training stages; raises CorpusError if a stage has fewer training rows than a batch."""
        for index, stage in enumerate(self.recipe.stages):
            self.stage(index, "train").check_batch_size(stage.batch_size)
            self.stage(index, "heldout")

    def train(self, index: int, row: int, own: OwnRows = all_rows) -> Iterator[Batch]:
        """Yield prefetched training batches of stage `index`, from the batch that starts at row `row` of the stage.

        own: maps a batch size to the indices of the rows that this process reads.
        """
        stage, batches = self.recipe.stages[index], self.stage(index, "train")
        rows, start = own(stage.batch_size), row // stage.batch_size
        if self._workers:
            return parallel_batches(batches, stage.batch_size, start, stage.steps, rows, workers=self._workers)
        return prefetch(lambda step: batches.batch(step, stage.batch_size, rows), start, stage.steps, depth=PREFETCH)

    def heldout(self, index: int, rows: int, shards: int, own: OwnRows = all_rows) -> Iterator[Batch]:
        """Yield held-out batches of stage `index`: about `rows` rows in whole batches, or all rows of a smaller split.

        Repeated calls yield the same batches. shards: number of devices that a batch is split over; own: as in `train`.
        """
        stage, batches = self.recipe.stages[index], self.stage(index, "heldout")
        size = min(stage.batch_size // stage.microbatches, -(-min(rows, batches.rows) // shards) * shards)
        if rows >= batches.rows or size > batches.rows:
            return (batches.sequential(step, size, own(size)) for step in range(batches.steps(size)))
        # Stop after one pass: a second one would count some rows twice.
        return (batches.batch(step, size, own(size)) for step in range(min(-(-rows // size), batches.rows // size)))

    def describe(self, index: int, row: int, rows: int) -> list[str]:
        """Return a line for each row of a training batch of stage `index`: its epoch, document and tokens.

        row: number of the stage's rows before this batch. rows: number of rows in this batch.
        """
        return self.stage(index, "train").describe(row // rows, rows)
