"""The interface between a fine-tuning run and its task: head, loss, batches and scores."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import jax
import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import Location
from bertzoo.data.rng import fold, fold_arrays
from bertzoo.data.tokenizers.vocabulary import UNKNOWN_ERROR, Tokenizer, check_unknown, describe_unknown
from bertzoo.finetuning.scoring import Evaluation, Split, outputs_and_losses, score_splits
from bertzoo.finetuning.settings import Finetune
from bertzoo.runs.runner import FlaxRunner
from bertzoo.tasks.rows import bucket_lengths
from bertzoo.tasks.squad import Question
from bertzoo.tasks.task import Example
from bertzoo.train.objective import Objective
from bertzoo.train.step import HostBatch

Say = Callable[[str], None]
Batches = Callable[[int, int], Iterator[HostBatch]]
_SAMPLED = 1000  # number of examples in which [UNK] is counted
_SUBSET = 3  # random stream of draw_subset
T = TypeVar("T")


# The training split, the development splits by name, the number of skipped examples by split and reason, and the number
# of examples by split, without skipped ones.
TaskSplits = tuple[Split, Mapping[str, Split], dict[str, dict[str, int]], dict[str, int]]


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task's splits, prepared for one model and shared by all seeds.

    rows: training rows per epoch.
    batches(seed, row): endless training batches, from the batch that starts at `row`.
    score(params): figures on the development splits.
    examples: number of examples by split.
    skipped: number of skipped examples by split and reason.
    digests: hash of the encoded examples, by split.
    notes: options that predictions depend on, for the saved model's `source`.
    teacher: the teacher's entry for run.json, or None.
    constant: the class predicted for every row instead of training, or None.
    """

    rows: int
    batches: Batches
    score: Callable[[Any], Evaluation]
    examples: dict[str, int]
    skipped: dict[str, dict[str, int]]
    digests: dict[str, str]
    notes: dict[str, str | int]
    teacher: dict[str, Any] | None = None
    constant: int | None = None


@dataclass(frozen=True)
class TaskKind(ABC):
    """The task of a fine-tuning run. The constructor raises ConfigError for options that do not apply to the task."""

    recipe: Finetune
    task: Any
    unit: ClassVar[str]  # plural noun for its examples in messages

    @property
    def name(self) -> str:
        return self.task.name

    @property
    @abstractmethod
    def head(self) -> Any:
        """The config of the head that the task needs."""

    def objective(self, module: Any) -> Objective:
        """Return the training objective of a model with the task's head."""
        options = {"alpha": self.recipe.alpha} if self.head.distillable else {}
        return self.head.objective(module, reduction=self.recipe.reduction, **options)

    def check_model(self, model: Any) -> None:
        """Raise ConfigError for the config of a model that the task cannot train."""
        return

    @abstractmethod
    def check_files(self) -> None:
        """Read the training and development files; raise UserError if one is wrong or the test file is missing."""

    @property
    @abstractmethod
    def notes(self) -> dict[str, str | int]:
        """Options that predictions depend on, for the saved model's `source`."""

    @abstractmethod
    def read_splits(self, tokenizer: Tokenizer, padding: int, tell: Say) -> TaskSplits:
        """Read and encode the splits, and report their sizes; raises UserError for wrong files.

        padding: as in `prepare`.
        """

    def add_teacher(
        self, objective: Any, train: Any, dev: Mapping[str, Any], teacher: Location, mesh: jax.sharding.Mesh, tell: Say
    ) -> tuple[Any, Mapping[str, Any], dict[str, Any]]:
        """Return the training and development splits with the teacher's outputs, and its entry for run.json.

        objective: the training objective.

        Raises ConfigError for a teacher of another task.
        """
        raise NotImplementedError(f"{self.name} has no teacher")

    def constant(self, train: Any) -> int | None:
        """Return the class to predict for every row instead of training, or None."""
        return None

    def prepare(
        self,
        objective: Any,
        tokenizer: Tokenizer,
        padding: int,
        mesh: jax.sharding.Mesh,
        teacher: Location | None,
        tell: Say,
    ) -> TaskData:
        """Read and encode the splits for a model.

        padding: number of padding tokens after a row that affect the model's outputs. Raises the errors of
        `read_splits` and `add_teacher`.
        """
        recipe, size = self.recipe, self.recipe.batch_size
        self.check_test_file()
        train, dev, skipped, sizes = self.read_splits(tokenizer, padding, tell)
        splits: dict[str, Split] = {"train": train, **dev}
        for name, split in splits.items():
            check_split(tokenizer, split.examples, name, tell)
        lengths = bucket_lengths([split.rows for split in splits.values()], recipe.buckets, recipe.max_length)
        tell(f"batches of rows of {', '.join(map(str, lengths))} tokens")
        record = None
        if teacher is not None:
            train, dev, record = self.add_teacher(objective, train, dev, teacher, mesh, tell)
        runner = FlaxRunner(outputs_and_losses(objective), None, mesh, size, lengths)

        def batches(seed: int, row: int) -> Iterator[HostBatch]:
            epoch, done = divmod(row // size, -(-len(train) // size))
            while True:
                for slot in train.plan(size, lengths, seed, epoch)[done:]:
                    yield train.batch(slot, size)
                epoch, done = epoch + 1, 0

        return TaskData(
            rows=len(train),
            batches=batches,
            score=lambda params: score_splits(runner.with_params(params), dev),
            examples=sizes,
            skipped=skipped,
            digests={name: split.digest for name, split in splits.items()},
            notes=self.notes,
            teacher=record,
            constant=self.constant(train),
        )

    def check_test_file(self) -> None:
        """Raise UserError if the test file named in [own] is missing; else the error would come after training."""
        if self.recipe.task == "own" and self.recipe.own.test:
            self.recipe.own.open("test", self.recipe.data_dir)

    def draw_subset(self, examples: list[T]) -> list[T]:
        """Draw `train_rows` examples (0: all) by `seed`, in file order; raises ConfigError if there are fewer."""
        count = self.recipe.train_rows
        if count > len(examples):
            raise ConfigError(
                f"train_rows = {count} is more than the {len(examples)} {self.unit} of {self.name}. Use a smaller "
                "number, or 0 for all."
            )
        if not count:
            return examples
        order = np.argsort(fold_arrays(fold(self.recipe.seed, _SUBSET), np.arange(len(examples))), kind="stable")
        return [examples[index] for index in sorted(order[:count])]


def changed_field(table: Any, names: Iterable[str] = ()) -> str | None:
    """Return "name = value" of the table's first field that differs from its default, or None.

    names: fields to look at; empty: all.
    """
    for field in dataclasses.fields(table):
        if (not names or field.name in names) and getattr(table, field.name) != field.default:
            return f"{field.name} = {getattr(table, field.name)!r}"
    return None


def warn_unknown(tokenizer: Tokenizer, examples: Sequence[Example | Question], place: str, tell: Say) -> None:
    """Warn through `tell` if more than 20 % of the examples' tokens are [UNK]. place: name of the examples."""
    if (share := _unknown_share(tokenizer, examples)) > UNKNOWN_ERROR:
        tell(f"warning: {describe_unknown(share, place)}. The model was trained on other text.")


def check_split(tokenizer: Tokenizer, examples: Sequence[Example | Question], name: str, tell: Say) -> None:
    """Warn if too many of a split's tokens are [UNK]: more than 1 % of `train` or 20 % of another split.

    Raises CorpusError if more than 20 % of `train` are [UNK].
    """
    if name == "train":
        check_unknown(_unknown_share(tokenizer, examples), name, tell, inherited=True)
    else:
        warn_unknown(tokenizer, examples, name, tell)


def _unknown_share(tokenizer: Tokenizer, examples: Sequence[Example | Question]) -> float:
    """Return the share of [UNK] among the tokens of at most 1,000 of the examples."""
    sample = examples[:: len(examples) // _SAMPLED + 1]
    return tokenizer.unknown_share([text for example in sample for text in example.texts])


def tell_skipped(skipped: dict[str, dict[str, int]], unit: str, tell: Say) -> None:
    """Report the number of skipped examples by split and reason. unit: a noun for examples."""
    for name, reasons in skipped.items():
        tell(f"{name}: skipped {', '.join(f'{count} {unit} ({reason})' for reason, count in reasons.items())}")
