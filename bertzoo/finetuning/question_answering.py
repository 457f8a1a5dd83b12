"""Fine-tuning on questions about paragraphs: SQuAD's and the user's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from bertzoo.conversion.pretrained import source_number
from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import Location
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.finetuning.scoring import Predictor
from bertzoo.finetuning.task_kind import Evaluation, Say, TaskData, TaskKind, changed_field, check_split, tell_skipped
from bertzoo.models.tasks import JointSpanExtraction, SpanExtraction
from bertzoo.objectives.span import JointSpanObjective, Reduction, SpanObjective
from bertzoo.tasks import squad_metric, windows
from bertzoo.tasks.answers import Decoding, decode
from bertzoo.tasks.rows import bucket_lengths
from bertzoo.tasks.squad_tasks import SpanTask, SquadOptions
from bertzoo.tasks.windows import Windows
from bertzoo.train.step import Batch

LABELS_ONLY = ("double_unordered", "scale", "hidden", "pooler", "wnli")  # options that do not apply to questions
NOTED = ("stride", "max_question", "longest", "candidates", "threshold")  # options that answers depend on
AnySpanObjective = SpanObjective | JointSpanObjective


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
    def distillable(self) -> bool:
        return False

    @property
    def head(self) -> SpanExtraction | JointSpanExtraction:
        if self.recipe.squad.joint:
            return JointSpanExtraction(beam=self.recipe.squad.candidates)
        return SpanExtraction(dropout=self.recipe.dropout, pooler=False)

    def objective(self, module: Any) -> AnySpanObjective:
        return span_objective(module, self.recipe.squad.joint, self.recipe.reduction)

    def check_files(self) -> None:
        self.task.splits(self.recipe.data_dir, self.recipe.squad.heldout)
        self.check_test_file()

    def prepare(
        self,
        objective: AnySpanObjective,
        tokenizer: Tokenizer,
        padding: int,
        mesh: jax.sharding.Mesh,
        teacher: Location | None,
        tell: Say,
    ) -> TaskData:
        recipe, size = self.recipe, self.recipe.batch_size
        train, dev = self._read(tokenizer, padding, tell)
        lengths = bucket_lengths([train.rows, dev.rows], recipe.buckets, recipe.max_length)
        tell(f"batches of rows of {', '.join(map(str, lengths))} tokens")
        decoding = recipe.squad.decoding(self.task.nulls)
        return TaskData(
            rows=len(train.rows),
            batches=self.make_batches(train, len(train.rows), lengths),
            score=AnswerScorer(self.task, decoding, objective, mesh, dev, batch_size=size, lengths=lengths),
            examples={"train": _trained_count(train), "dev": len(dev.questions)},
            skipped=_skipped(train),
            digests={"train": train.digest, "dev": dev.digest},
            notes=squad_notes(recipe.squad, self.task.nulls),
        )

    def _read(self, tokenizer: Tokenizer, padding: int, tell: Say) -> tuple[Windows, Windows]:
        """Return the windows of the training questions and of the development questions."""
        recipe = self.recipe
        self.check_test_file()
        train_set, dev_set = self.task.splits(recipe.data_dir, recipe.squad.heldout)
        questions = self.draw_subset(train_set.questions)
        if train_set.ambiguous:
            tell(
                f"train: {train_set.ambiguous:,} answers occur more than once in their paragraph; the first occurrence "
                "counts"
            )
        windowing = recipe.squad.windowing(recipe.max_length)
        train = windows.make_windows(questions, tokenizer, windowing, labels=True, padding=padding)
        dev = windows.make_windows(dev_set.questions, tokenizer, windowing, labels=True, every=True, padding=padding)
        tell_skipped(_skipped(train), "questions", tell)
        for name, split in (("train", train), ("dev", dev)):
            if not split.windows:
                raise ConfigError(
                    f"all {len(split.questions)} questions of {name} were skipped ({', '.join(split.skipped)}). "
                    "Correct the data."
                )
            count = _trained_count(split) if split is train else len(split.questions)
            tell(f"{name}: {count:,} questions, {len(split.windows):,} windows")
            check_split(tokenizer, split.questions, name, tell)
        return train, dev


def span_objective(module: Any, joint: bool, reduction: Reduction = "mean") -> AnySpanObjective:
    """Return the objective of a model with a span head: JointSpanObjective if `joint`, else SpanObjective."""
    return (JointSpanObjective if joint else SpanObjective)(model=module, reduction=reduction)


class AnswerScorer:
    """Computes a model's answers to the questions of one split, and scores the answers."""

    def __init__(
        self,
        task: SpanTask,
        decoding: Decoding,
        objective: AnySpanObjective,
        mesh: jax.sharding.Mesh,
        data: Windows,
        *,
        batch_size: int,
        lengths: Sequence[int],
        split: str = "dev",
    ):
        self._task, self._decoding, self._split = task, decoding, split
        self._data, self._lengths = data, lengths
        mean = replace(objective, reduction="mean")

        def outputs_and_losses(params: Any, batch: Batch) -> Any:
            """Return the outputs for `decode`, and {loss term: (sum of losses, sum of weights)}."""
            sums, _ = mean(params, None, batch, None)
            weights = mean.weights(batch)
            return mean.predict(params, batch), {term: (sums[term], weights[term]) for term in sums}

        self._predictor = Predictor(outputs_and_losses, mesh, batch_size)

    def __call__(self, params: Any) -> Evaluation:
        slots, results = self._predictor(params, self._data, self._lengths, 1.0)
        totals = {term: np.sum([losses[term] for _, losses in results], axis=0) for term in results[0][1]}
        loss = float(sum(total / weight for total, weight in totals.values() if weight))
        figures = {"loss": loss, "score": 0.0, "collapsed": False, "scores": {self._split: {}}}
        if not np.isfinite(loss):
            return Evaluation(figures)  # train.loop raises NonFinite for this loss
        outputs = self._data.restore(slots, [output for output, _ in results])
        scored = answer_evaluation(self._task, self._decoding, self._data, outputs, self._split)
        return scored._replace(figures=figures | scored.figures)


def answer_evaluation(
    task: SpanTask, decoding: Decoding, data: Windows, outputs: Sequence[Mapping[str, np.ndarray]], split: str
) -> Evaluation:
    """Decode answers from a model's outputs, one per window in order, and evaluate the answers."""
    answered = decode(data, outputs, decoding)
    scores = task.score(data.questions, answered, decoding.threshold)
    same = len(answered) > 1 and len({answer.text for answer in answered}) == 1
    figures = {"score": scores[task.chosen_by], "collapsed": same, "scores": {split: scores}}
    return Evaluation(figures, lambda folder: squad_metric.save(folder, answered))


def _trained_count(train: Windows) -> int:
    return len(train.questions) - train.skipped.total()


def _skipped(train: Windows) -> dict[str, dict[str, int]]:
    return {"train": dict(train.skipped)} if train.skipped else {}


def squad_notes(options: SquadOptions, nulls: bool) -> dict[str, str | int]:
    """Return `nulls` and the options that affect predictions, to save in the model's `Pretrained.source`."""
    chosen = {name: str(getattr(options, name)) for name in NOTED if getattr(options, name) is not None}
    return {**chosen, "nulls": int(nulls)}


def noted_options(source: Mapping[str, Any], head: Any) -> tuple[SquadOptions, bool]:
    """Return the options and `nulls` that `squad_notes` recorded in `source`.

    Options that `source` lacks get their defaults; for a joint head, the default of `candidates` is the head's beam
    size.
    """
    joint = isinstance(head, JointSpanExtraction)
    options = SquadOptions(joint=joint, candidates=head.beam) if joint else SquadOptions()
    noted = {name: source_number(source, name, 0.0 if name == "threshold" else 0) for name in NOTED if name in source}
    return replace(options, **noted), bool(source.get("nulls", 0))
