"""Train a run: build the job of `train.loop` from the run's config, batches and directory, and run the loop."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

import jax

from bertzoo.runs.batches import RunBatches
from bertzoo.runs.bucket import Sender
from bertzoo.runs.configs import Nothing, Pretrain, Recipe, Transfer
from bertzoo.runs.run_dir import ORIGINS, RunDirectory
from bertzoo.runs.warm_start import WarmStart
from bertzoo.train import hosts, loop, memory, restore, sharding
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.experiment import Experiment
from bertzoo.train.progress import Console, JsonLines, Reporter, TensorBoard
from bertzoo.train.stages import Stage, locate, stage_of

AnyRecipe = TypeVar("AnyRecipe", Pretrain, Transfer)
# On CPUs, steps of many tokens are faster in microbatches of about 1,024, but not those of models narrower than 256
# (docs/performance.md).
_TOKENS, _WIDTH = 1024, 256


def microbatches(recipe: Recipe, run: RunDirectory) -> list[int]:
    """Return the number of microbatches of each training stage.

    A stage that leaves it open keeps the number that the run recorded, so that a resumed run draws the same dropout. In
    a new run, wide models on CPUs get microbatches of 1,024 tokens on each device, or the next larger ones that divide
    the rows.
    """
    shards = sharding.row_shards(sharding.make_mesh(recipe.mesh))
    wide = jax.default_backend() == "cpu" and recipe.model.hidden_size >= _WIDTH
    recorded = run.load().stages[: len(recipe.stages)] if run.config.exists() else ()

    def number(stage: Stage, before: Stage | None) -> int:
        if stage.accumulate is not None:
            return stage.accumulate
        rows = stage.batch_size // shards
        if before is not None and rows % before.microbatches == 0:
            return before.microbatches
        fitting = (n for n in range(1, rows + 1) if rows % n == 0 and rows // n * stage.max_length >= _TOKENS)
        return max(fitting, default=1) if wide else 1

    return [number(*pair) for pair in zip_longest(recipe.stages, recorded)]


def with_microbatches(recipe: AnyRecipe, numbers: Sequence[int]) -> AnyRecipe:
    """Return `recipe` with a number of microbatches for each training stage."""
    if isinstance(recipe, Pretrain):
        return replace(recipe, stages=_cut(recipe.stages, numbers))
    groups, strategy = len(recipe.layer_groups), recipe.transfer
    if not isinstance(strategy, Nothing):
        strategy = replace(strategy, accumulate=numbers[0])
    return replace(recipe, transfer=strategy, distillation=_cut(recipe.distillation, numbers[groups:]))


def _cut(stages: Sequence[Stage], numbers: Sequence[int]) -> tuple[Stage, ...]:
    return tuple(replace(stage, accumulate=number) for stage, number in zip(stages, numbers, strict=True))


def check_checkpoint(built: Experiment, run: RunDirectory) -> None:
    """Raise CheckpointError if the run's newest checkpoint does not fit the model and the optimiser of `built`."""
    step = run.latest()
    if step is not None:
        restore.check_compatible(run.checkpoints, built.state(stage_of(built.stages, step)))


def train(
    recipe: Recipe,
    built: Experiment,
    batches: RunBatches,
    run: RunDirectory,
    start: WarmStart | None = None,
    until: int | None = None,
    followed: bool = False,
    console: bool = True,
) -> int:
    """Train from the newest checkpoint to the end; return the number of steps done.

    built: the run that `recipe` describes.
    start: the frozen parameters and, for a run without a checkpoint, the initial parameters.
    until: the step after which to pause.
    followed: whether another run follows in this program, so that a signal at the last step still stops the program.
    console: whether to print progress to standard error.

    Only process 0 writes files other than checkpoints. Raises the errors of `train.loop.run`.
    """

    def begin() -> None:
        if done := run.latest():
            locate(recipe.stages, done)
            run.record_changes(recipe, done)
        run.write_config(recipe)
        kinds = [f"{device.platform} {device.device_kind}" for device in jax.devices()]
        origins = {name: record for name in ORIGINS if (record := run.origin(name))}
        if not done:
            origins = {} if start is None else {start.key: start.record}
        run.write_provenance(kinds, jax.process_count(), batches.corpus, origins)

    hosts.share("the plans of the rows", batches.check_rows)
    batches.check_rows()
    hosts.share("the run directory", begin)
    own = functools.partial(sharding.own_rows, mesh=built.mesh)
    reporters: list[Reporter] = []
    if hosts.is_first():
        reporters = [JsonLines(run.metrics), TensorBoard(run.tensorboard)]
        reporters += [Console(recipe.stages)] if console else []
        reporters += [Sender(run.bucket)] if run.bucket else []  # last, as it uploads what the others write
    try:
        with Checkpoints(
            run.checkpoints,
            keep_last=recipe.run.keep_last,
            keep_best=recipe.run.keep_best,
            before_save=run.bucket and run.bucket.before_a_save,
        ) as checkpoints:
            done = loop.run(
                loop.Job(
                    experiment=built,
                    config=recipe.run,
                    seed=recipe.seed,
                    batches=functools.partial(batches.train, own=own),
                    heldout=functools.partial(
                        batches.heldout, rows=recipe.run.evaluate_rows, shards=sharding.row_shards(built.mesh), own=own
                    ),
                    checkpoints=checkpoints,
                    reporters=reporters,
                    flops_per_example=built.flops,
                    frozen=None if start is None else start.frozen,
                    describe=batches.describe,
                    initial=None if start is None else start.params,
                    until=until,
                    followed=followed,
                    memory_advice=memory.advice(built),
                )
            )
    finally:
        for reporter in reporters:
            reporter.close()
    return int(done.step)
