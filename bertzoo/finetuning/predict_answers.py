"""Answer questions with a fine-tuned model, and score its answers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bertzoo.core.errors import ConfigError, UserError
from bertzoo.finetuning.question_answering import noted_options
from bertzoo.finetuning.saved_model import SavedModel, Unlabelled
from bertzoo.finetuning.scoring import AnswerSplit
from bertzoo.finetuning.task_kind import Say
from bertzoo.tasks import custom_questions, windows
from bertzoo.tasks.answers import Answered, decode
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

    def task(self, name: str = "", data_dir: str = "") -> SpanTask:
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

    def for_task(self, task: SpanTask, tell: Say = lambda line: None) -> "QuestionModel":
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
        slots, outputs = self.runner([data.rows], batch_size).run_all(data)
        answered = decode(data, data.restore(slots, outputs) if slots else [], self.recipe.squad.decoding(self.nulls))
        pieces = self.tokenizer.encode_batch([question.text for question in questions])
        return Answers(answered, data.skipped, sum(len(ids) > self.recipe.squad.max_question for ids in pieces))

    def fit(self, longest: int) -> "QuestionModel":
        """Return a copy with windows of at most `longest` tokens.

        Raises UserError if a window has no room for a paragraph beside a question of `squad.max_question` tokens.
        """
        options = self.recipe.squad
        room = longest - options.max_question - 3  # tokens of the paragraph, beside [CLS] and two [SEP]
        if room < 1:
            raise UserError(
                f"rows of {longest} tokens leave no room for a paragraph beside a question of {options.max_question} "
                "tokens. Use longer --lengths."
            )
        # Windows overlap by at least half, as in long rows.
        options = replace(options, stride=min(options.stride, max(1, room // 2)))
        recipe = replace(self.recipe, squad=options)
        return replace(self, max_length=min(self.max_length, longest), recipe=recipe)

    def read_examples(
        self, task: SpanTask, split: SplitName, directory: str, tell: Say
    ) -> tuple[dict[str, list[Question]], dict[str, dict[str, int]]]:
        """Return the questions of a split by its name, and {}, since nothing is skipped.

        Raises UserError if the answers are hidden.
        """
        read = self.read_questions(task, split, directory)
        if read.hidden:
            raise Unlabelled(split, f"the {split} set of {task.name} has no answers, so it cannot be scored.")
        if self.recipe.squad.heldout and split != "test":
            tell(f"{split}: the articles that squad.heldout {'holds out' if split == 'dev' else 'leaves for training'}")
        return {split: read.questions}, {}

    def encode_split(self, task: SpanTask, examples: Sequence[Question], name: str) -> AnswerSplit:
        """Encode questions and answers of `task`; raises UserError if an answer is missing or no question has a window.

        Call this method on a model from `for_task`. name: the split's name.
        """
        task.check(examples)
        data = self.windows(examples, labels=True)
        if not data.windows:
            raise ConfigError(
                f"all {len(examples)} questions of {name} have a paragraph without words. Correct the paragraphs."
            )
        return AnswerSplit(task=task, windows=data, decoding=self.recipe.squad.decoding(task.nulls))

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
    if model.pretrained.head.form != "question":
        return None
    options, nulls = noted_options(model.pretrained.source, model.pretrained.head)
    if model.recipe.task:  # the model is in a run, whose config has the options
        options = model.recipe.squad
    if model.task_name == "own":
        nulls = model.recipe.own.unanswerable
    elif model.task_name in SQUAD:
        nulls = SQUAD[model.task_name].nulls
    return QuestionModel(**vars(replace(model, recipe=replace(model.recipe, squad=options))), nulls=nulls)
