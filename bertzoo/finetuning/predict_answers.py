"""Answer questions with a fine-tuned model, and score its answers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.finetuning.question_answering import AnswerScorer, noted_options, span_objective
from bertzoo.finetuning.saved_model import SPANS, SavedModel, mesh
from bertzoo.finetuning.task_kind import Evaluation
from bertzoo.models.tasks import JointSpanExtraction
from bertzoo.tasks import custom_questions, windows
from bertzoo.tasks.answers import Answered, decode
from bertzoo.tasks.rows import Slot
from bertzoo.tasks.squad import Question
from bertzoo.tasks.squad_tasks import SQUAD, QuestionSet, SpanTask, SplitName
from bertzoo.tasks.windows import Windows


class Answers(NamedTuple):
    """Answers in the order of the questions.

    skipped: number of questions without a window (a part of the paragraph), by reason.
    shortened: number of questions cut to max_question tokens.
    """

    answered: list[Answered]
    skipped: Counter[str]
    shortened: int


@dataclass(frozen=True, kw_only=True)
class QuestionModel(SavedModel):
    """A fine-tuned model that answers questions. nulls: whether the model can predict "no answer"."""

    nulls: bool

    def task(self, name: str = "") -> SpanTask:
        """Return the task `name`, by default the model's own; raises ConfigError for a task without questions."""
        name, known = name or self.task_name, " or ".join(SQUAD)
        if name == "own":
            self.check_columns()
            return custom_questions.question_task(self.recipe.own)
        if not name:
            raise ConfigError(f"{self.path} does not record its task. Name {known} with --task.")
        if name not in SQUAD:
            raise ConfigError(f"{self.path} answers questions, but {name} has no questions. Name {known} with --task.")
        return SQUAD[name]

    def for_task(self, task: SpanTask) -> "QuestionModel":
        """Return a copy with the task's `nulls`: whether questions may have no answer."""
        return replace(self, nulls=task.nulls)

    def read_questions(self, task: SpanTask, split: SplitName, directory: str) -> QuestionSet:
        """Read the questions of a split from `directory`; raises UserError for wrong files.

        If the model's run sets squad.heldout, train and dev are parts of the training data.
        """
        return task.split(split, directory, self.recipe.squad.heldout)

    def answer(self, questions: Sequence[Question], batch_size: int = 0) -> Answers:
        """Predict answers; annotated answers and the batch size do not affect the result."""
        bare = [question._replace(answers=(), impossible=False) for question in questions]
        data = self.windows(bare, labels=False)
        slots, outputs = self.outputs(data, batch_size) if data.windows else ([], [])
        decoding = self.recipe.squad.decoding(self.nulls)
        answered = decode(data, data.restore(slots, outputs) if slots else [], decoding)
        pieces = self.tokenizer.encode_batch([question.text for question in questions])
        return Answers(answered, data.skipped, sum(len(ids) > self.recipe.squad.max_question for ids in pieces))

    def outputs(self, data: Windows, batch_size: int = 0) -> tuple[list[Slot], list[dict[str, np.ndarray]]]:
        """Run the model on windows; return each batch's Slot (row indices, length) and outputs for `answers.decode`."""
        module, params = self.module()
        predictor = self.predictor(self._objective(module).predict, batch_size)
        return predictor(params, data, self.lengths([data.rows]), 1.0)

    def score(self, task: SpanTask, questions: Sequence[Question], split: str, batch_size: int = 0) -> Evaluation:
        """Score the model's answers as training does after an epoch. Call this method on a model from `for_task`.

        split: the split's name in the scores. Raises UserError if a question lacks a required answer.
        """
        data = self.scored_windows(task, questions, split)
        module, params = self.module()
        scorer = AnswerScorer(
            task,
            self.recipe.squad.decoding(task.nulls),
            self._objective(module),
            mesh(),
            data,
            batch_size=self.size(batch_size),
            lengths=self.lengths([data.rows]),
            split=split,
        )
        return scorer(params)

    def _objective(self, module):
        return span_objective(module, isinstance(self.pretrained.head, JointSpanExtraction))

    def scored_windows(self, task: SpanTask, questions: Sequence[Question], split: str) -> Windows:
        """Encode questions and answers; raises UserError if an answer is missing or no question has a window."""
        task.check(questions)
        data = self.windows(questions, labels=True)
        if not data.windows:
            raise ConfigError(
                f"all {len(questions)} questions of {split} have a paragraph without words. Correct the paragraphs."
            )
        return data

    def windows(self, questions: Sequence[Question], labels: bool) -> Windows:
        """Encode questions as windows (question, part of its paragraph). labels: whether to add answer positions."""
        windowing = self.recipe.squad.windowing(self.max_length)
        return windows.make_windows(
            questions, self.tokenizer, windowing, labels=labels, every=labels, padding=self.padding
        )


def question_model(model: SavedModel) -> QuestionModel | None:
    """Convert a saved model to a QuestionModel with the `squad` options of its training.

    Return None if the model has no span head.
    """
    if not isinstance(model.pretrained.head, SPANS):
        return None
    options, nulls = noted_options(model.pretrained.source, model.pretrained.head)
    if model.recipe.task:  # the model is in a run, whose config has the options
        options = model.recipe.squad
    if model.task_name == "own":
        nulls = model.recipe.own.unanswerable
    elif model.task_name in SQUAD:
        nulls = SQUAD[model.task_name].nulls
    return QuestionModel(**vars(replace(model, recipe=replace(model.recipe, squad=options))), nulls=nulls)
