"""Tasks of question answering: SQuAD's and the user's own."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.finetuning.scoring import Predictor
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Judgement, Lessons, Say, changed, drawn, epochs, look_at_test, tell_skipped
from bertzoo.models.tasks import JointSpanExtraction, SpanExtraction
from bertzoo.objectives.span import JointSpanObjective, Reduction, SpanObjective
from bertzoo.tasks import squad_metric, windows
from bertzoo.tasks.answers import Decoding, decode
from bertzoo.tasks.rows import bucket_lengths
from bertzoo.tasks.squad_tasks import SpanTask, Squad
from bertzoo.tasks.windows import Windows
from bertzoo.train.step import Batch, HostBatch

OF_LABELS = ("double_unordered", "scale", "hidden", "pooler", "wnli")  # options without a meaning here
NOTED = ("stride", "max_question", "longest", "candidates", "threshold")
AnySpanObjective = SpanObjective | JointSpanObjective


@dataclass(frozen=True)
class Span:
    """A task of questions in a run; a paragraph is as many rows as it has windows."""

    recipe: Finetune
    task: SpanTask

    def __post_init__(self):
        recipe, options, name = self.recipe, self.recipe.squad, self.task.name
        if strange := changed(recipe, OF_LABELS):
            raise ConfigError(f"{strange} is for tasks of labels, and {name} has questions: leave it out")
        if options.joint and recipe.dropout:
            raise ConfigError(f"dropout = {recipe.dropout} has no place in the head of squad.joint: give dropout = 0")
        if options.threshold is not None and not self.task.nulls:
            raise ConfigError(
                f"squad.threshold = {options.threshold} is for questions without an answer, which {name} does not have"
            )
        if name == "own" and bool(recipe.own.dev) == bool(options.heldout):
            raise ConfigError(
                f"own.dev = {recipe.own.dev!r} and squad.heldout = {options.heldout} are two development sets"
                if options.heldout
                else "task = own has no development examples: name own.dev, or hold some out by squad.heldout"
            )
        options.windowing(recipe.max_length)
        options.decoding(self.task.nulls)

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def taught(self) -> bool:
        return False

    @property
    def head(self) -> SpanExtraction | JointSpanExtraction:
        if self.recipe.squad.joint:
            return JointSpanExtraction(beam=self.recipe.squad.candidates)
        return SpanExtraction(dropout=self.recipe.dropout, pooler=False)

    def objective(self, module: Any) -> AnySpanObjective:
        return objective_of(module, self.recipe.squad.joint, self.recipe.reduction)

    def look(self) -> None:
        self.task.splits(self.recipe.data_dir, self.recipe.squad.heldout)
        look_at_test(self.recipe)

    def lessons(
        self,
        objective: AnySpanObjective,
        tokenizer: Tokenizer,
        padding: int,
        mesh: jax.sharding.Mesh,
        teacher: Path | None,
        tell: Say,
    ) -> Lessons:
        recipe, size = self.recipe, self.recipe.batch_size
        train, dev = self._read(tokenizer, padding, tell)
        lengths = bucket_lengths([train.rows, dev.rows], recipe.buckets, recipe.max_length)
        tell(f"rows of {', '.join(map(str, lengths))} tokens")

        def batches(seed: int, row: int) -> Iterator[HostBatch]:
            steps = -(-len(train.rows) // size)
            slots = epochs(lambda epoch: train.plan(size, lengths, seed, epoch), steps, row // size)
            return (train.batch(slot, size) for slot in slots)

        return Lessons(
            rows=len(train.rows),
            batches=batches,
            judge=Examiner(
                self.task,
                recipe.squad.decoding(self.task.nulls),
                objective,
                mesh,
                dev,
                batch_size=size,
                lengths=lengths,
            ),
            examples={"train": _learnt(train), "dev": len(dev.questions)},
            skipped=_skipped(train),
            digests={"train": train.digest, "dev": dev.digest},
            notes=notes(recipe.squad, self.task.nulls),
        )

    def _read(self, tokenizer: Tokenizer, padding: int, tell: Say) -> tuple[Windows, Windows]:
        recipe = self.recipe
        look_at_test(recipe)
        learnt, held = self.task.splits(recipe.data_dir, recipe.squad.heldout)
        questions = drawn(recipe, learnt.questions, "questions")
        if learnt.ambiguous:
            tell(f"train: {learnt.ambiguous:,} answers occur more than once in their text; the first is learnt")
        windowing = recipe.squad.windowing(recipe.max_length)
        train = windows.make(questions, tokenizer, windowing, labels=True, padding=padding)
        dev = windows.make(held.questions, tokenizer, windowing, labels=True, every=True, padding=padding)
        tell_skipped(_skipped(train), "questions", tell)
        for name, part in (("train", train), ("dev", dev)):
            if not part.windows:
                raise ConfigError(f"the {len(part.questions)} questions of {name} leave no row: each is passed over")
            count = _learnt(part) if part is train else len(part.questions)
            tell(f"{name}: {count:,} questions, {len(part.windows):,} windows")
        return train, dev


def objective_of(module: Any, joint: bool, reduction: Reduction = "mean") -> AnySpanObjective:
    """What is learnt by a model under either head, and what is decoded of it."""
    made = JointSpanObjective if joint else SpanObjective
    return made(model=module, reduction=reduction)


class Examiner:
    """Answers the questions of a split, and scores the answers."""

    def __init__(
        self,
        task: SpanTask,
        decoding: Decoding,
        objective: AnySpanObjective,
        mesh: jax.sharding.Mesh,
        asked: Windows,
        *,
        batch_size: int,
        lengths: Sequence[int],
        split: str = "dev",
    ):
        self._task, self._decoding, self._split = task, decoding, split
        self._asked, self._lengths = asked, lengths
        mean = replace(objective, reduction="mean")

        def both(params: Any, batch: Batch) -> Any:
            """What is decoded, and by term the loss and its weight."""
            sums, _ = mean(params, None, batch, None)
            weights = mean.weights(batch)
            return mean.predict(params, batch), {term: (sums[term], weights[term]) for term in sums}

        self._predictor = Predictor(both, mesh, batch_size)

    def __call__(self, params: Any) -> Judgement:
        slots, found = self._predictor(params, self._asked, self._lengths, 1.0)
        totals = {term: np.sum([losses[term] for _, losses in found], axis=0) for term in found[0][1]}
        loss = float(sum(total / weight for total, weight in totals.values() if weight))
        judged = {"loss": loss, "score": 0.0, "collapsed": False, "scores": {self._split: {}}}
        if not np.isfinite(loss):
            return Judgement(judged)  # which ends the run, in a sentence
        outputs = self._asked.restore(slots, [output for output, _ in found])
        answered = decode(self._asked, outputs, self._decoding)
        scores = self._task.score(self._asked.questions, answered, self._decoding.threshold)
        judged |= {"score": scores[self._task.chosen_by], "scores": {self._split: scores}}
        judged["collapsed"] = len(answered) > 1 and len({answer.text for answer in answered}) == 1

        def save(folder: Path) -> None:
            squad_metric.save(folder, answered)

        return Judgement(judged, save)


def _learnt(train: Windows) -> int:
    """How many questions are not passed over."""
    return len(train.questions) - train.skipped.total()


def _skipped(train: Windows) -> dict[str, dict[str, int]]:
    return {"train": dict(train.skipped)} if train.skipped else {}


def notes(options: Squad, nulls: bool) -> dict[str, str | int]:
    """How questions are asked and answered, flat, to be kept beside a model."""
    chosen = {name: str(getattr(options, name)) for name in NOTED if getattr(options, name) is not None}
    return {**chosen, "nulls": int(nulls)}


def noted(source: Mapping[str, Any], head: Any) -> tuple[Squad, bool]:
    """What `notes` kept, and for what is not there the usual options of a model's head."""
    joint = isinstance(head, JointSpanExtraction)
    options = Squad(joint=joint, candidates=head.beam) if joint else Squad()
    kinds = {one.name: float if one.name == "threshold" else int for one in dataclasses.fields(Squad)}
    given = {name: kinds[name](source[name]) for name in NOTED if name in source}
    return replace(options, **given), bool(source.get("nulls", 0))
