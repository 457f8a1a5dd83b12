"""Fine-tune a model with one seed: score it after each epoch, and save the model of the best epoch."""

import logging
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bertzoo.conversion.pretrained import Pretrained, inherited
from bertzoo.core import atomic
from bertzoo.core.config import divisors
from bertzoo.core.documents import read_json
from bertzoo.core.kinds import METRICS, model_name
from bertzoo.core.logs import LOGGER
from bertzoo.core.paths import Location
from bertzoo.finetuning.kind import MODEL
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import (
    Evaluation,
    RowForm,
    Scores,
    Split,
    SplitOutputs,
    TaskKind,
    check_split,
    outputs_and_losses,
    score_splits,
)
from bertzoo.finetuning.warm_start import StartingModel
from bertzoo.heads import parameter_shapes
from bertzoo.models.partial import BELOW_LAYERS
from bertzoo.runs import load_model
from bertzoo.runs.runner import FlaxRunner
from bertzoo.tasks.rows import bucket_lengths
from bertzoo.train import loop, state
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.experiment import Experiment, RateFactor, StageSetup
from bertzoo.train.progress import Console, Record, Reporter, file_reporters
from bertzoo.train.step import HostBatch

_LOG = logging.getLogger(__name__)

SCORES, DECISION = "scores.json", "decision.json"
# An epoch in scores.json.
_EPOCH = {"epoch": int, "step": int, "score": float, "scores": {str: {str: float}}, "collapsed": bool, "loss?": float}
_LAYER = re.compile(r"encoder/layers_(\d+)/")


class SeedJob:
    """The task, the model to start from, and the encoded splits, which all seeds of a run share.

    lengths: of the batches' rows. stage: the training of a seed. examples: their number by split. skipped: number of
    skipped examples by split and reason. digests: hash of the encoded examples, by split. teacher: the teacher's entry
    for run.json, or None.
    """

    def __init__(self, task: TaskKind, start: StartingModel, mesh: jax.sharding.Mesh, teacher: Location | None):
        """Read and encode the splits for a model; raises the errors of `read_splits` and `add_teacher`."""
        self.task, self.start, self.mesh, self.recipe = task, start, mesh, start.recipe
        task.check_test_file()
        form = RowForm(start.tokenizer, self.recipe.max_length, start.model.padding_seen)
        train, dev, self.skipped = task.read_splits(form)
        splits: dict[str, Split] = {"train": train, **dev}
        for name, split in splits.items():
            check_split(start.tokenizer, split.examples, name)
        rows = [split.rows for split in splits.values()]
        self.lengths = bucket_lengths(rows, self.recipe.buckets, self.recipe.max_length)
        _LOG.info(f"batches of rows of {', '.join(map(str, self.lengths))} tokens")
        self.examples = {name: split.size for name, split in splits.items()}
        self.digests = {name: split.digest for name, split in splits.items()}
        self.teacher: dict[str, Any] | None = None
        self.train: Split = train
        self.dev: Mapping[str, Split] = dev
        if teacher is not None:
            self.train, self.dev, self.teacher = task.add_teacher(start.model, train, dev, teacher, mesh)
        self.stage = self.recipe.stage(len(self.train))

    def batches(self, seed: int, row: int) -> Iterator[HostBatch]:
        """Yield training batches without end, from the batch that starts at `row`."""
        size = self.recipe.batch_size
        epoch, start = divmod(row // size, -(-len(self.train) // size))
        while True:
            for slot in self.train.plan(size, self.lengths, seed, epoch)[start:]:
                yield self.train.batch(slot, size)
            epoch, start = epoch + 1, 0

    def score(self, params: Any) -> Evaluation:
        """Return the scores and the loss of parameters on the development splits."""
        return score_splits(self._runner.with_params(params), self.dev)

    @cached_property
    def _runner(self) -> FlaxRunner:
        function = outputs_and_losses(self.start.objective)
        return FlaxRunner(function, None, self.mesh, self.recipe.batch_size, self.lengths)

    @cached_property
    def experiment(self) -> Experiment:
        """The built run, whose compiled steps the seeds share."""
        recipe, start, stage = self.recipe, self.start, self.stage
        rates = layerwise_rates(parameter_shapes(start.model, start.head), recipe.layer_decay)
        setup = StageSetup(objective=start.objective, optimizer=recipe.optimizer, rates=rates)
        return Experiment(stages=[stage], setups=[setup], mesh=self.mesh)


class PercentagePoints:
    """Passes records to a reporter, with training accuracies converted to points, the unit of the task's scores."""

    def __init__(self, reporter: Reporter):
        self._reporter, self.close = reporter, reporter.close

    def __call__(self, record: Record) -> None:
        shares = record.items() if record.get("split") == "train" else ()
        self._reporter(record | {name: 100 * share for name, share in shares if name.endswith("accuracy")})


class Seed:
    """Trains with one seed. The seed's directory holds checkpoints, all epochs' scores and the chosen epoch's model."""

    def __init__(self, job: SeedJob, seed: int, folder: Path):
        self._job, self.seed, self.folder = job, seed, folder
        self._epoch = job.stage.steps // job.recipe.epochs
        self.history = read_scores(folder / SCORES)
        if self.history and not (model := folder / MODEL / load_model.MODEL).is_file():
            _LOG.info(f"seed {seed}: training starts anew, because {model} is missing")
            self._remove_checkpoints()
            self.history = []

    @property
    def finished(self) -> bool:
        """Whether no step is left, or `patience` epochs have passed without a better score."""
        if not self.history:
            return False
        epochs = len(self.history) - 1 - self.history.index(self.chosen)
        return self.history[-1]["step"] == self._job.stage.steps or 0 < self._job.recipe.patience <= epochs

    @property
    def chosen(self) -> Scores:
        """The scores of the epoch whose model is saved, as `chosen_epoch` returns them."""
        return chosen_epoch(self._job.recipe, self.history)

    def run(self, followed: bool = False) -> None:
        """Train to the end, from the newest checkpoint if there is one; raises the errors of `train.loop.run`.

        followed: whether another seed follows, which a signal at the last step stops.
        """
        job, recipe = self._job, self._job.recipe
        if self.finished:
            self._remove_checkpoints()  # a run may stop just before it removes them
            return
        _LOG.info(f"seed {self.seed}")
        self.folder.mkdir(parents=True, exist_ok=True)
        files = file_reporters(self.folder / METRICS, self.folder / "tensorboard")
        console = [Console([job.stage])] if LOGGER.isEnabledFor(logging.INFO) else []
        reporters = [PercentagePoints(reporter) for reporter in (*files, *console)]
        try:
            with Checkpoints(self.folder / "checkpoints", keep_last=1, keep_best=0) as checkpoints:
                loop.run(
                    loop.Job(
                        experiment=job.experiment,
                        config=loop.RunSettings(
                            log_every=recipe.log_every, evaluate_every=self._epoch, save_every=self._epoch
                        ),
                        seed=self.seed,
                        batches=lambda _, row: job.batches(self.seed, row),
                        checkpoints=checkpoints,
                        reporters=reporters,
                        initial=job.start.initial,
                        length=lambda batch: batch["input_ids"].shape[-1],
                        flops_per_example=job.experiment.flops,
                        measure=self._evaluate,
                        followed=followed,
                        memory_advice=lambda _, share: _memory_advice(recipe, share),
                        enough=lambda step: self.finished and step == self.history[-1]["step"],
                    )
                )
        finally:
            for reporter in reporters:
                reporter.close()
        self._remove_checkpoints()

    def _remove_checkpoints(self) -> None:
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)

    def _evaluate(self, step: int, params: Any) -> dict[str, float]:
        """Score the parameters, save them if this epoch is now the chosen one, and return metrics to log."""
        scored, save, outputs = self._job.score(params)
        if not np.isfinite(scored["loss"]):
            return {"loss": scored["loss"]}  # the loop raises NonFinite, and a rerun repeats the epoch
        entry = {"epoch": step // self._epoch, "step": step, **scored}
        self.history = [*(earlier for earlier in self.history if earlier["step"] < step), entry]
        if self.chosen is entry:
            self._save(params, entry, outputs)  # before scores.json, so that a killed run repeats this epoch
            save(self.folder)
        atomic.write_json(self.folder / SCORES, self.history)
        flat = {f"{split}_{name}": value for split, named in scored["scores"].items() for name, value in named.items()}
        return {"loss": scored["loss"], **flat}

    def _save(self, params: Any, entry: Scores, outputs: SplitOutputs) -> None:
        job, start, teacher, folder = self._job, self._job.start, self._job.teacher, self.folder / MODEL
        source: dict[str, Any] = {
            "format": "finetune",
            "task": job.task.name,
            "seed": self.seed,
            "epoch": entry["epoch"],
            "max_length": job.recipe.max_length,
            "from": model_name(start.record["path"]),
            "from_sha256": start.record["parameters_sha256"],
            **({"from_step": start.record["step"]} if "step" in start.record else {}),
            **inherited(start.record),
            **({"teacher_sha256": teacher["parameters_sha256"]} if teacher else {}),
            "scores": entry["scores"],
            **job.task.notes,
            **({"own": job.recipe.own.columns} if job.task.name == "own" else {}),
        }
        pretrained = Pretrained(
            model=start.model,
            head=start.head,
            params={name: np.asarray(leaf) for name, leaf in state.named(params).items()},
            tokenizer=start.tokenizer,
            origin=str(folder),
            source=source,
        )
        pretrained, document = job.task.finish(pretrained, job.dev, outputs)
        names = load_model.PARAMETERS, load_model.TOKENIZER
        with atomic.new_files(folder / load_model.MODEL, *names, replace=True) as temporary:
            load_model.write_model(pretrained, temporary)
        if document is None:
            (self.folder / DECISION).unlink(missing_ok=True)  # of an earlier epoch
        else:
            atomic.write_json(self.folder / DECISION, document)


def layerwise_rates(names: Collection[str], decay: float) -> RateFactor | None:
    """Return a function from a parameter's name to its learning rate factor, or None if `decay` is 1.

    names: all parameters. The factors are those of ELECTRA's code (electra/model/optimization.py), which has no pooler:
    head: 1.
    pooler: decay.
    layer i of n, counted from 0: decay^(n + 1 - i).
    embedding and its projection: decay^(n + 2).
    """
    if decay == 1:
        return None
    layers = 1 + max((int(match[1]) for name in names if (match := _LAYER.match(name))), default=-1)

    def rate(name: str) -> float:
        if match := _LAYER.match(name):
            return decay ** (layers + 1 - int(match[1]))
        if name.startswith(BELOW_LAYERS):
            return decay ** (layers + 2)
        return decay if name.startswith("pooler/") else 1.0

    return rate


def _memory_advice(recipe: Finetune, share: float) -> str:
    """Return advice on how to fit a training step into `share` (a fraction) of the memory that it now needs."""
    count = next((n for n in divisors(recipe.batch_size) if n >= recipe.accumulate / share), None)
    if count is None:
        return "Not even one example at a time fits: use a smaller --max_length or a device with more memory."
    return f"Use --accumulate={count}, which computes the same in {count} microbatches, or a smaller --batch_size."


def chosen_epoch(recipe: Finetune, history: list[Scores]) -> Scores:
    """Return the scores of the saved epoch: the first with the best score or, for `select` = "last", the last."""
    return history[-1] if recipe.select == "last" else max(history, key=lambda entry: entry["score"])


def read_scores(file: Path) -> list[Scores]:
    """Read a seed's scores of each epoch, [] if there is no file; raises UserError if the file is damaged."""
    advice = f"Restore the file, or remove {file.parent} to train the seed anew."
    return read_json(file, [_EPOCH], advice) if file.is_file() else []


def read_decision(folder: Path) -> dict[str, Any] | None:
    """Read decision.json of a seed's directory, None if there is none; raises UserError if it is damaged."""
    file, pattern = folder / DECISION, {"labels": [str], "examples": int, "reliability": [{"ece": float}]}
    return read_json(file, pattern, "Train the seed anew.") if file.is_file() else None
