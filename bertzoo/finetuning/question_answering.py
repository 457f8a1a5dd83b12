"""Tasks with questions about paragraphs, SQuAD's and the user's own: training, scores and answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast, get_args

import numpy as np

from bertzoo.conversion.pretrained import source_number
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import LOSSES, Predictions, Purpose, RowForm, Split, TaskKind, Unlabelled, build_head
from bertzoo.heads import JointSpanExtraction, SpanExtraction
from bertzoo.runs.runner import Outputs
from bertzoo.tasks import squad, squad_tasks, windows
from bertzoo.tasks.answers import Answered, Decoding, decode
from bertzoo.tasks.custom import question_task
from bertzoo.tasks.predictions import answer_records
from bertzoo.tasks.rows import Slot
from bertzoo.tasks.squad import Question
from bertzoo.tasks.squad_tasks import SQUAD, SpanTask, SplitName, SquadOptions
from bertzoo.tasks.task import SplitExamples
from bertzoo.tasks.windows import Windows

if TYPE_CHECKING:
    from bertzoo.finetuning.evaluate import TaskModel

NOTED = ("stride", "max_question", "longest", "candidates", "threshold")  # options that answers depend on


@dataclass(frozen=True, kw_only=True)
class AnswerSplit(Split):
    """Questions of a split, encoded as windows of their paragraphs. decoding: how answers are chosen."""

    task: SpanTask
    windows: Windows
    decoding: Decoding
    finite_only = True

    @property
    def summary(self) -> str:
        return f"{self.size:,} questions, {len(self):,} windows"

    @property
    def deciding(self) -> tuple[str, ...]:
        return ("best_f1" if self.task.nulls else "f1",)

    @property
    def digest(self) -> str:
        return self.windows.digest

    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]:
        return self.windows.batch(slot, batch_size)

    def predict(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> list[Answered]:
        """Return an answer to each question; raises UserError if an output is not finite."""
        named = [{name: array for name, array in output.items() if name != LOSSES} for output in outputs]
        return decode(self.windows, self.windows.restore(slots, named) if slots else [], self.decoding)

    def scores(self, predictions: list[Answered]) -> dict[str, float]:
        """Return SQuAD's official metrics by name; those of `score_2` if some questions have no answer."""
        if not self.task.nulls:
            return squad_tasks.score_1(self.examples, {answer.key: answer.text for answer in predictions})
        odds = {answer.key: answer.null_odds or 0.0 for answer in predictions}
        best = {answer.key: answer.best for answer in predictions}
        return squad_tasks.score_2(self.examples, best, odds, self.decoding.threshold)

    def distinct(self, predictions: list[Answered]) -> set[Any]:
        """Return the distinct answers, or none for a single question, whose answer proves no collapse."""
        return {answer.text for answer in predictions} if len(predictions) > 1 else set()

    def save(self, folder: Path, predictions: list[Answered]) -> None:
        """Write the answers as SQuAD's scripts read them."""
        squad_tasks.save(folder, predictions)


@dataclass(frozen=True)
class QuestionTask(TaskKind):
    """A task whose examples are questions.

    A sequence holds a question and a window: a section of the question's paragraph.
    """

    task: SpanTask
    unit = skipped_unit = "questions"

    @classmethod
    def named(cls, model: "TaskModel", name: str, data_dir: str) -> Self:
        names = " or ".join(SQUAD)
        if name == "own":
            return cls(model.recipe, question_task(model.recipe.own))
        if not name:
            raise ConfigError(f"{model.path} does not record its task. Name {names} with --task.")
        if name not in SQUAD:
            raise ConfigError(f"{model.path} answers questions, but {name} has no questions. Name {names} with --task.")
        return cls(model.recipe, SQUAD[name])

    @classmethod
    def unnamed(cls, model: "TaskModel") -> Self:
        """Return a task with questions; the model's own task, or its `source`, records whether all have an answer."""
        if model.task_name == "own":
            nulls = model.recipe.own.unanswerable
        elif model.task_name in SQUAD:
            nulls = SQUAD[model.task_name].nulls
        else:
            nulls = bool(model.pretrained.source.get("nulls", 0))
        read: Any = None
        return cls(model.recipe, SpanTask(name="", nulls=nulls, read=read))

    def adapt(self, model: "TaskModel") -> "TaskModel":
        return replace(model, task_name=self.name)  # `unnamed` reads it

    @staticmethod
    def fit(recipe: Finetune, longest: int) -> Finetune:
        """Return the config for windows of at most `longest` tokens.

        Raises UserError if a window has no room for a paragraph beside a question of `squad.max_question` tokens.
        """
        options = recipe.squad
        room = longest - options.max_question - 3  # tokens of the paragraph, beside [CLS] and two [SEP]
        if room < 1:
            raise UserError(
                f"rows of {longest} tokens leave no room for a paragraph beside a question of {options.max_question} "
                "tokens. Use longer --lengths."
            )
        # Windows overlap by at least half, as in long rows.
        return replace(recipe, squad=replace(options, stride=min(options.stride, max(1, room // 2))))

    def data_sets(self, split: str) -> tuple[str, ...]:
        if split not in get_args(SplitName):
            raise UserError(f"--split={split} is unknown. Use train, dev or test.")
        return (split,)

    def check(self) -> None:
        recipe, options, name = self.recipe, self.recipe.squad, self.task.name
        if recipe.head == JointSpanExtraction.kind:
            raise ConfigError(
                f"head = {recipe.head!r} is the head of squad.joint. Set squad.joint = true and remove head."
            )
        if options.joint and recipe.dropout:
            raise ConfigError(
                f"dropout = {recipe.dropout} conflicts with squad.joint, whose head has no dropout. Use dropout = 0."
            )
        if options.threshold is not None and not self.task.nulls:
            raise ConfigError(
                f"squad.threshold = {options.threshold} applies only to tasks with unanswerable questions, not to "
                f"{name}. Remove it."
            )
        if name == "own" and bool(recipe.own.dev) == bool(options.heldout):
            raise ConfigError(
                f"own.dev = {recipe.own.dev!r} and squad.heldout = {options.heldout} conflict. Keep one."
                if options.heldout
                else "task = own has no development examples. Set own.dev, or hold out articles with squad.heldout."
            )
        options.windowing(recipe.max_length)
        options.decoding(self.task.nulls)

    @property
    def head(self) -> Any:
        if self.recipe.squad.joint:
            return JointSpanExtraction(beam=self.recipe.squad.candidates)
        return build_head(
            self.recipe, SpanExtraction, "span", hidden=self.recipe.hidden, dropout=self.recipe.dropout, pooler=False
        )

    def read(self, name: str, directory: str) -> SplitExamples:
        """Read questions. If the run sets squad.heldout, train and dev are subsets of the training data.

        Else dev is the development file, and `directory` may be the path of this file.
        """
        heldout, split = self.recipe.squad.heldout, cast(SplitName, name)
        if heldout and split != "test":
            train, dev = squad.hold_out(self.task.read("train", directory).examples, heldout)
            return SplitExamples(train if split == "train" else dev)
        return self.task.read("train" if split == "dev" and Path(directory).is_file() else split, directory)

    def read_files(self) -> dict[str, SplitExamples]:
        directory, heldout = self.recipe.data_dir, self.recipe.squad.heldout
        train = self.task.read("train", directory)
        if heldout:
            examples, dev_examples = squad.hold_out(train.examples, heldout)
            train, dev = train._replace(examples=examples), SplitExamples(dev_examples)
        else:
            dev = self.task.read("dev", directory)
        self.task.check(dev.examples)
        return {"train": train, "dev": dev}

    def note(self, name: str) -> str:
        if not self.recipe.squad.heldout or name == "test":
            return ""
        return f"the articles that squad.heldout {'holds out' if name == 'dev' else 'leaves for training'}"

    def check_labels(self, name: str, read: SplitExamples) -> None:
        if read.hidden:
            raise Unlabelled(f"the {name} set of {self.name} has no answers, so it cannot be scored.")

    @property
    def notes(self) -> dict[str, str | int]:
        return squad_notes(self.recipe.squad, self.task.nulls)

    def encode(self, examples: Sequence[Question], name: str, form: RowForm, purpose: Purpose = "score") -> AnswerSplit:
        """Encode questions; raises UserError if none has a window, or one to score lacks an answer."""
        options, scored, labels = self.recipe.squad, purpose == "score", purpose != "predict"
        if scored:
            self.task.check(examples)
        bare = examples if labels else [question._replace(answers=(), impossible=False) for question in examples]
        windowing = options.windowing(form.max_length)
        data = windows.make_windows(bare, form.tokenizer, windowing, labels=labels, every=scored, padding=form.padding)
        if labels and not data.windows:
            raise ConfigError(
                f"all {len(examples)} questions of {name} were skipped ({', '.join(data.skipped)}). Correct the data."
            )
        return AnswerSplit(
            task=self.task,
            examples=examples,
            rows=data.rows,
            skipped={} if scored else data.skipped,
            windows=data,
            decoding=options.decoding(self.task.nulls),
        )

    def decode(self, split: AnswerSplit, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> Predictions:
        answered, cut = split.predict(slots, outputs), split.windows.cut
        counts = [
            (int(cut.sum()), f"cut to {self.recipe.squad.max_question} pieces"),
            (sum(not question.text.strip() for question in split.examples), "empty"),
            (sum(split.skipped.values()), "without an answer: the text has no word"),
        ]
        return Predictions(answered, None, cut, answer_records(answered), counts)


def squad_notes(options: SquadOptions, nulls: bool) -> dict[str, str | int]:
    """Return `nulls` and the options that affect predictions, to save in the model's `Pretrained.source`."""
    chosen = {name: str(getattr(options, name)) for name in NOTED if getattr(options, name) is not None}
    return {**chosen, "nulls": int(nulls)}


def noted_options(source: Mapping[str, Any], head: Any) -> tuple[SquadOptions, bool]:
    """Return the options and `nulls` that `squad_notes` recorded in `source`.

    Options that `source` lacks get their defaults; for a joint head, the default of `candidates` is the head's beam
    size.
    """
    options = SquadOptions(**head.answer_options)
    noted = {name: source_number(source, name, 0.0 if name == "threshold" else 0) for name in NOTED if name in source}
    return replace(options, **noted), bool(source.get("nulls", 0))
