"""Options of question answering tasks, and the tasks of SQuAD."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertzoo.core.errors import ConfigError, UserError
from bertzoo.tasks import squad
from bertzoo.tasks.answers import Decoding
from bertzoo.tasks.squad import Question
from bertzoo.tasks.task import SplitExamples
from bertzoo.tasks.windows import Windowing

ELECTRA_THRESHOLD = -2.75
SplitName = Literal["train", "dev", "test"]


@dataclass(frozen=True, kw_only=True)
class SquadOptions:
    """The config table [squad]: options for encoding questions and decoding answers. `max_length`, outside of this
    table, limits a row's tokens.
    """

    # share of the training articles whose questions become the development set; 0: use the development file
    heldout: float = 0.0
    stride: int = Windowing.stride  # tokens between the starts of two windows of a paragraph
    max_question: int = Windowing.max_question  # maximum number of tokens of a question; further tokens are dropped
    longest: int = Decoding.longest  # maximum number of tokens of an answer
    # maximum of starts per window, ends per window (if joint, per start) and candidate answers per question
    candidates: int = Decoding.candidates
    joint: bool = False  # use ELECTRA's head, which predicts the end given the start, and whether there is an answer
    # null odds (score of "no answer") above which no answer is given; "none": 0, or -2.75 if joint
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.heldout < 1:
            raise ConfigError(f"heldout = {self.heldout} is not a share. Use at least 0 and below 1.")

    def windowing(self, max_length: int) -> Windowing:
        """Return a Windowing with these options; raises ConfigError if one is below 1 or `max_length` is too small."""
        return Windowing(max_length=max_length, stride=self.stride, max_question=self.max_question)

    def decoding(self, nulls: bool) -> Decoding:
        """Return a Decoding with these options; raises ConfigError if one is out of range. nulls: as in Decoding."""
        usual = ELECTRA_THRESHOLD if self.joint else Decoding.threshold
        threshold = usual if self.threshold is None else self.threshold
        return Decoding(candidates=self.candidates, longest=self.longest, nulls=nulls, threshold=threshold)


@dataclass(frozen=True, kw_only=True)
class SpanTask:
    """A task with questions whose answers are parts of paragraphs; `read(split, directory)` returns a split.

    nulls: whether some questions have no answer (SQuAD 2.0).
    """

    name: str
    nulls: bool
    read: Callable[[SplitName, Path | str], SplitExamples]

    def check(self, questions: Sequence[Question]) -> None:
        """Raise UserError if a question has no answer, unless the task has unanswerable questions (`nulls`)."""
        if not self.nulls and (bare := next((q for q in questions if not q.answers), None)):
            raise UserError(f"{bare.place} has no answer, so predictions cannot be scored. Use a split with answers.")


def _squad(version: squad.Version) -> Callable[[SplitName, Path | str], SplitExamples]:
    def read(split: SplitName, source: Path | str) -> SplitExamples:
        if split == "test":
            raise UserError(f"SQuAD {version} has no public test set. Use dev.")
        if split == "dev" and Path(source).is_file():
            raise UserError(
                f"data_dir = {source} is one file, which leaves no questions for scoring. Name a directory with "
                "the train and dev files, or set squad.heldout."
            )
        return SplitExamples(squad.load_squad(source, split, version))

    return read


SQUAD = {
    "squad1": SpanTask(name="squad1", nulls=False, read=_squad("1.1")),
    "squad2": SpanTask(name="squad2", nulls=True, read=_squad("2.0")),
}
