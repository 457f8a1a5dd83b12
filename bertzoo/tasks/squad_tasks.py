"""Tasks of question answering: their options, their questions, and their scores as the official scripts define them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from bertzoo.core.errors import ConfigError, UserError
from bertzoo.tasks import squad
from bertzoo.tasks.answers import Answered, Decoding
from bertzoo.tasks.squad import Question
from bertzoo.tasks.squad_metric import score_1, score_2
from bertzoo.tasks.windows import Windowing

ELECTRA_THRESHOLD = -2.75
Split = Literal["train", "dev", "test"]


@dataclass(frozen=True, kw_only=True)
class Squad:
    """How questions are asked and answered; the rows' length is the run's max_length.

    heldout: the share of articles of the training file (of paragraphs, where it has no articles) whose questions are
    the development set, instead of a file. joint: ELECTRA's head, which looks for the end given the start and tells
    whether there is an answer. threshold: null odds above which no answer is given; None for that of the head's code.
    """

    heldout: float = 0.0
    stride: int = Windowing.stride
    max_question: int = Windowing.max_question
    longest: int = Decoding.longest  # pieces of an answer
    candidates: int = Decoding.candidates  # starts of a window, ends of a window or start, answers of a question
    joint: bool = False
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.heldout < 1:
            raise ConfigError(f"heldout = {self.heldout} is not a share in [0, 1)")

    def windowing(self, max_length: int) -> Windowing:
        """How paragraphs are cut; raises ConfigError."""
        return Windowing(max_length=max_length, stride=self.stride, max_question=self.max_question)

    def decoding(self, nulls: bool) -> Decoding:
        """How answers are chosen; raises ConfigError."""
        usual = ELECTRA_THRESHOLD if self.joint else Decoding.threshold
        threshold = usual if self.threshold is None else self.threshold
        return Decoding(candidates=self.candidates, longest=self.longest, nulls=nulls, threshold=threshold)


class Asked(NamedTuple):
    """The questions of a split, and how many have an answer that is more than once in its paragraph.

    hidden: whether the split lacks the answers, so that nothing can be scored by them.
    """

    questions: list[Question]
    ambiguous: int = 0
    hidden: bool = False


@dataclass(frozen=True, kw_only=True)
class SpanTask:
    """Questions whose answers are parts of paragraphs; `read(split, directory)` raises UserError as a Task's does.

    nulls: some have no answer (SQuAD 2.0). dev: whether there is a file of the development set.
    """

    name: str
    nulls: bool
    read: Callable[[Split, Path | str], Asked]
    dev: bool = True

    def splits(self, directory: Path | str, heldout: float) -> tuple[Asked, Asked]:
        """The questions to learn and those of the development set; raises UserError where a split is not there."""
        train = self.read("train", directory)
        if heldout:
            learnt, held = squad.hold_out(train.questions, heldout)
            dev, train = Asked(held), train._replace(questions=learnt)
        else:
            dev = self.read("dev", directory)
        self.check(dev.questions)
        return train, dev

    def check(self, questions: Sequence[Question]) -> None:
        """Raise UserError where a question cannot be scored."""
        if not self.nulls and (bare := next((q for q in questions if not q.answers), None)):
            raise UserError(f"{bare.place} has no answer that a prediction could be compared with")

    def split(self, split: Split, directory: Path | str, heldout: float) -> Asked:
        """The questions of one split; of a single file that is named, and of which none are held out, all."""
        if heldout and split != "test":
            learnt, held = squad.hold_out(self.read("train", directory).questions, heldout)
            return Asked(learnt if split == "train" else held)
        whole = split == "dev" and not str(directory).startswith(squad.TFDS) and Path(directory).is_file()
        return self.read("train" if whole else split, directory)

    def score(self, questions: Sequence[Question], answered: Sequence[Answered], threshold: float) -> dict[str, float]:
        """`score` of the task's answers."""
        return score(self.nulls, questions, answered, threshold)

    @property
    def chosen_by(self) -> str:
        """The score by which an epoch is chosen."""
        return "best_f1" if self.nulls else "f1"


def score(
    nulls: bool, questions: Sequence[Question], answered: Sequence[Answered], threshold: float
) -> dict[str, float]:
    """`exact_match` and `f1`; with nulls `exact` and `f1` at the threshold, and the best that any could make of the
    answers.
    """
    if not nulls:
        return score_1(questions, {answer.key: answer.text for answer in answered})
    odds = {answer.key: answer.null_odds or 0.0 for answer in answered}
    found = score_2(questions, {answer.key: answer.best for answer in answered}, odds, threshold)
    return {name: found[name] for name in ("exact", "f1", *BEST)}


BEST = ("best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh")


def _squad(version: squad.Version) -> Callable[[Split, Path | str], Asked]:
    def read(split: Split, source: Path | str) -> Asked:
        if split == "test":
            raise UserError(f"SQuAD {version} has no test set that is public")
        if split == "dev" and not str(source).startswith(squad.TFDS) and Path(source).is_file():
            raise UserError(
                f"data_dir = {source} is one file, of which no other questions are left to be scored: name the"
                " directory of both files, or give squad.heldout"
            )
        return Asked(squad.load(source, split, version))

    return read


SQUAD = {
    "squad1": SpanTask(name="squad1", nulls=False, read=_squad("1.1")),
    "squad2": SpanTask(name="squad2", nulls=True, read=_squad("2.0")),
}
