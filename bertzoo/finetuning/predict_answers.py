"""A fine-tuned model that answers questions, ready to be asked."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bertzoo.core.errors import ConfigError
from bertzoo.finetuning import saved_model
from bertzoo.finetuning.question_answering import Examiner, noted, objective_of
from bertzoo.finetuning.saved_model import SPANS, Kept
from bertzoo.finetuning.scoring import Predictor
from bertzoo.finetuning.task_kind import Judgement
from bertzoo.models.tasks import JointSpanExtraction
from bertzoo.tasks import custom_questions, windows
from bertzoo.tasks.answers import Answered, decode
from bertzoo.tasks.rows import bucket_lengths
from bertzoo.tasks.squad import Question
from bertzoo.tasks.squad_tasks import SQUAD, Asked, SpanTask, Split
from bertzoo.tasks.windows import Windows


class Answers(NamedTuple):
    """What is said of N questions, in their order; `skipped` says why how many have no answer, and `shortened` how
    many questions were longer than is read of one.
    """

    found: list[Answered]
    skipped: Counter[str]
    shortened: int


@dataclass(frozen=True, kw_only=True)
class Answering(Kept):
    """nulls: whether it may say that there is no answer."""

    nulls: bool

    def task(self, name: str = "") -> SpanTask:
        """The task that it was trained on, or another by its name; raises ConfigError."""
        name = name or self.named
        if name == "own" and self.recipe.task == "own":
            return custom_questions.task(self.recipe.own)
        if not name or name == "own":
            raise ConfigError(
                f"{self.path} does not say on which task it was trained: name {' or '.join(SQUAD)} with --task"
            )
        if name not in SQUAD:
            raise ConfigError(f"{self.path} answers questions, which {name} does not have: name {' or '.join(SQUAD)}")
        return SQUAD[name]

    def of(self, task: SpanTask) -> "Answering":
        """The same, which may say that there is no answer where the task has such questions."""
        return replace(self, nulls=task.nulls)

    def asked(self, task: SpanTask, split: Split, directory: str) -> Asked:
        """The questions of a split, or in its run's way those held out of the training file; raises UserError."""
        return task.split(split, directory, self.recipe.squad.heldout)

    def answer(self, asked: Sequence[Question], batch_size: int = 0) -> Answers:
        """The answers to questions, whatever answers they have themselves; rows make no difference to it."""
        bare = [question._replace(answers=(), impossible=False) for question in asked]
        made = self.windows(bare, labels=False)
        module, params = self.module()
        predictor = Predictor(self._objective(module).predict, saved_model.mesh(), self.size(batch_size))
        slots, outputs = predictor(params, made, self._lengths(made), 1.0) if made.windows else ([], [])
        found = decode(made, made.restore(slots, outputs) if slots else [], self.recipe.squad.decoding(self.nulls))
        longest = self.recipe.squad.max_question
        pieces = self.tokenizer.encode_batch([question.text for question in asked])
        return Answers(found, made.skipped, sum(len(ids) > longest for ids in pieces))

    def judge(self, task: SpanTask, asked: Sequence[Question], split: str, batch_size: int = 0) -> Judgement:
        """The scores of a split, as a run's after each epoch, and what writes its answers; the model is one of the
        task. Raises UserError where a question cannot be scored.
        """
        task.check(asked)
        made = self.windows(asked, labels=True)
        if not made.windows:
            raise ConfigError(f"the {len(asked)} questions of {split} leave no row: no text of theirs has a word")
        module, params = self.module()
        examiner = Examiner(
            task,
            self.recipe.squad.decoding(task.nulls),
            self._objective(module),
            saved_model.mesh(),
            made,
            batch_size=self.size(batch_size),
            lengths=self._lengths(made),
            split=split,
        )
        return examiner(params)

    def _objective(self, module):
        return objective_of(module, isinstance(self.pretrained.head, JointSpanExtraction))

    def windows(self, asked: Sequence[Question], labels: bool) -> Windows:
        """The rows of questions as the model reads them."""
        windowing = self.recipe.squad.windowing(self.max_length)
        return windows.make(asked, self.tokenizer, windowing, labels=labels, every=labels, padding=self.padding)

    def _lengths(self, made: Windows) -> tuple[int, ...]:
        return bucket_lengths([made.rows], self.recipe.buckets, self.max_length)


def of(found: Kept) -> Answering | None:
    """A model with a head that answers questions, asked as in its training; None for one with another head."""
    if not isinstance(found.pretrained.head, SPANS):
        return None
    options, nulls = noted(found.pretrained.source, found.pretrained.head)
    if found.recipe.task:  # of a run, which knows itself
        options = found.recipe.squad
        nulls = found.recipe.own.unanswerable if found.named == "own" else SQUAD[found.named].nulls
    elif found.named in SQUAD:
        nulls = SQUAD[found.named].nulls
    return Answering(**vars(replace(found, recipe=replace(found.recipe, squad=options))), nulls=nulls)
