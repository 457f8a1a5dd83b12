"""What differs between the kinds of tasks in a fine-tuning run: head, loss, rows, and how well a model does."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.data.rng import fold, fold_arrays
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.finetuning.settings import Finetune
from bertzoo.train.objective import Objective
from bertzoo.train.step import HostBatch

Judged = dict[str, Any]  # loss, score, collapsed, and scores: {split: {metric: points}}
Say = Callable[[str], None]
_SUBSET = 3  # what is drawn
T = TypeVar("T")


def look_at_test(recipe: Finetune) -> None:
    """Raise UserError where one's own file of a test set is named and not there: it is missed only when all is done."""
    if recipe.task == "own" and recipe.own.test:
        recipe.own.open("test", recipe.data_dir)


def _nothing(folder: Path) -> None:
    """A kind of task of which no file is kept beside the model."""


class Judgement(NamedTuple):
    """How well a model does, and a function that writes into a folder what is kept beside it."""

    judged: Judged
    save: Callable[[Path], None] = _nothing


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """What one seed after another learns, and who judges it.

    rows: in an epoch of training; batches(seed, row): of training, from the one that `row` begins, without an end;
    judge: of parameters; examples: of every split how many, and skipped by reason; teacher: its record for run.json;
    constant: the class that the model says of every row, for which nothing is learnt, or None;
    digests: of what is learnt and judged, a hash for every split; notes: what is written beside a model, without which
    it would say something else.
    """

    rows: int
    batches: Callable[[int, int], Iterator[HostBatch]]
    judge: Callable[[Any], Judgement]
    examples: dict[str, int]
    skipped: dict[str, dict[str, int]]
    digests: dict[str, str]
    teacher: dict[str, Any] | None = None
    constant: int | None = None
    notes: dict[str, str | int] = dataclasses.field(default_factory=dict)


class Family(Protocol):
    """A task with all that its kind decides; to make one raises ConfigError for options that its kind does not have.

    name: the task's; taught: whether it can have a teacher; head: its config.
    """

    @property
    def name(self) -> str: ...
    @property
    def taught(self) -> bool: ...
    @property
    def head(self) -> Any: ...

    def objective(self, module: Any) -> Objective:
        """What is learnt by a model under the head."""
        ...

    def look(self) -> None:
        """Read the files of the splits; raises UserError where `lessons` would for them."""
        ...

    def lessons(
        self,
        objective: Any,
        tokenizer: Tokenizer,
        padding: int,
        mesh: jax.sharding.Mesh,
        teacher: Path | None,
        tell: Say,
    ) -> Lessons:
        """The splits, read for a model that sees so many tokens of padding behind a row.

        Raises UserError for their files, and ConfigError where the teacher is not one of these.
        """
        ...


def drawn(recipe: Finetune, examples: list[T], unit: str) -> list[T]:
    """As many examples as `train_rows` says, drawn by the seed, in their order; raises ConfigError for too many."""
    if recipe.train_rows > len(examples):
        raise ConfigError(f"train_rows = {recipe.train_rows} is more than the {len(examples)} {unit} there are")
    if not recipe.train_rows:
        return examples
    order = np.argsort(fold_arrays(fold(recipe.seed, _SUBSET), np.arange(len(examples))), kind="stable")
    return [examples[index] for index in sorted(order[: recipe.train_rows])]


def epochs(plan: Callable[[int], list[T]], steps: int, done: int) -> Iterator[T]:
    """The slots of `plan(epoch)` of `steps` each, one epoch after another, after the first `done`."""
    epoch, inside = divmod(done, steps)
    while True:
        yield from plan(epoch)[inside:]
        epoch, inside = epoch + 1, 0


def changed(table: Any, names: Iterable[str] = ()) -> str | None:
    """The first field of a config, or of these of its fields, that is not at its default, in words."""
    for one in dataclasses.fields(table):
        if (not names or one.name in names) and getattr(table, one.name) != one.default:
            return f"{one.name} = {getattr(table, one.name)!r}"
    return None


def tell_skipped(skipped: dict[str, dict[str, int]], unit: str, tell: Say) -> None:
    """Say of every split how much was passed over, and why."""
    for name, reasons in skipped.items():
        tell(f"{name}: passed over {', '.join(f'{count} {unit} ({reason})' for reason, count in reasons.items())}")
