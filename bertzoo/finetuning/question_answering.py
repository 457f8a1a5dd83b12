"""Fine-tuning on questions about paragraphs: SQuAD's and the user's own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bertzoo.conversion.pretrained import source_number
from bertzoo.core.errors import ConfigError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.finetuning.scoring import AnswerSplit
from bertzoo.finetuning.task_kind import Say, TaskKind, TaskSplits, changed_field, tell_skipped
from bertzoo.heads import JointSpanExtraction, SpanExtraction
from bertzoo.tasks import windows
from bertzoo.tasks.squad_tasks import SpanTask, SquadOptions

LABELS_ONLY = ("double_unordered", "scale", "hidden", "pooler", "wnli")  # options that do not apply to questions
NOTED = ("stride", "max_question", "longest", "candidates", "threshold")  # options that answers depend on


@dataclass(frozen=True)
class QuestionTask(TaskKind):
    """A fine-tuning task whose examples are questions.

    A row holds a question and a window: a part of the question's paragraph.
    """

    task: SpanTask
    unit = "questions"

    def __post_init__(self):
        recipe, options, name = self.recipe, self.recipe.squad, self.task.name
        if field := changed_field(recipe, LABELS_ONLY):
            raise ConfigError(f"{field} applies only to tasks with labels, and {name} has questions. Remove it.")
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
    def head(self) -> SpanExtraction | JointSpanExtraction:
        if self.recipe.squad.joint:
            return JointSpanExtraction(beam=self.recipe.squad.candidates)
        return SpanExtraction(dropout=self.recipe.dropout, pooler=False)

    def check_files(self) -> None:
        self.task.splits(self.recipe.data_dir, self.recipe.squad.heldout)
        self.check_test_file()

    @property
    def notes(self) -> dict[str, str | int]:
        return squad_notes(self.recipe.squad, self.task.nulls)

    def read_splits(self, tokenizer: Tokenizer, padding: int, tell: Say) -> TaskSplits:
        recipe = self.recipe
        train_set, dev_set = self.task.splits(recipe.data_dir, recipe.squad.heldout)
        questions = self.draw_subset(train_set.questions)
        if train_set.ambiguous:
            tell(
                f"train: {train_set.ambiguous:,} answers occur more than once in their paragraph; the first occurrence "
                "counts"
            )
        windowing, decoding = recipe.squad.windowing(recipe.max_length), recipe.squad.decoding(self.task.nulls)
        encoded = {
            "train": windows.make_windows(questions, tokenizer, windowing, labels=True, padding=padding),
            "dev": windows.make_windows(
                dev_set.questions, tokenizer, windowing, labels=True, every=True, padding=padding
            ),
        }
        skipped = encoded["train"].skipped
        by_reason = {"train": dict(skipped)} if skipped else {}
        tell_skipped(by_reason, "questions", tell)
        sizes = {"train": len(questions) - skipped.total(), "dev": len(dev_set.questions)}
        for name, split in encoded.items():
            if not split.windows:
                raise ConfigError(
                    f"all {len(split.questions)} questions of {name} were skipped ({', '.join(split.skipped)}). "
                    "Correct the data."
                )
            tell(f"{name}: {sizes[name]:,} questions, {len(split.windows):,} windows")
        train, dev = (AnswerSplit(task=self.task, windows=split, decoding=decoding) for split in encoded.values())
        return train, {"dev": dev}, by_reason, sizes


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
