"""Train a run: build the job of `train.loop` from the run's config, batches and directory, and run the loop."""

import functools
from collections.abc import Callable, Sequence

import jax

from bertzoo.runs import stage_setups, step_memory
from bertzoo.runs.batches import RunBatches
from bertzoo.runs.bucket import Sender
from bertzoo.runs.run_dir import ORIGINS, RunDirectory
from bertzoo.runs.transfer_config import Recipe
from bertzoo.runs.warm_start import WarmStart
from bertzoo.train import hosts, loop, restore, sharding, state
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.progress import Console, JsonLines, Reporter, TensorBoard
from bertzoo.train.stage_setup import StageSetup
from bertzoo.train.stages import locate, stage_of


def make_mesh(recipe: Recipe) -> jax.sharding.Mesh:
    """Return the device mesh of `recipe`; raises ConfigError if batches or parameters do not divide over it."""
    mesh = sharding.make_mesh(recipe.mesh)
    for stage in recipe.stages:
        sharding.check_rows(stage.batch_size, stage.accumulate, mesh)
    objective = stage_setups.build_setups(recipe)[0].objective
    sharding.shardings(state.boxed_shapes(objective), mesh, recipe.mesh.fallbacks)
    return mesh


def check_checkpoint(recipe: Recipe, run: RunDirectory, mesh: jax.sharding.Mesh) -> None:
    """Raise CheckpointError if the run's newest checkpoint does not fit the model and the optimiser in `recipe`."""
    step = run.latest()
    if step is None:
        return
    restore.check_compatible(run.checkpoints, step_memory.state_shapes(recipe, stage_of(recipe.stages, step), mesh))


def train(
    recipe: Recipe,
    batches: RunBatches,
    run: RunDirectory,
    mesh: jax.sharding.Mesh,
    start: WarmStart | None = None,
    until: int | None = None,
    setups: Sequence[StageSetup] | None = None,
    followed: bool = False,
    console: bool = True,
    where: Callable[[int], str] | None = None,
) -> int:
    """Train from the newest checkpoint to the end; return the number of steps done.

    start: the frozen parameters and, for a run without a checkpoint, the initial parameters.
    until: the step after which to pause.
    setups: losses and optimisers of the stages, by default those of `recipe`.
    followed: whether another run follows in this program, so that a signal at the last step still stops the program.
    console: whether to print progress to standard error.
    where: a function from a stage's index to the config key that advice on memory names; by default `recipe.where`.

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
    own = functools.partial(sharding.own_rows, mesh=mesh)
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
                    setups=stage_setups.build_setups(recipe) if setups is None else setups,
                    stages=recipe.stages,
                    config=recipe.run,
                    mesh=mesh,
                    seed=recipe.seed,
                    batches=functools.partial(batches.train, own=own),
                    heldout=functools.partial(
                        batches.heldout, rows=recipe.run.evaluate_rows, shards=sharding.row_shards(mesh), own=own
                    ),
                    checkpoints=checkpoints,
                    reporters=reporters,
                    flops_per_example=lambda index, batch: stage_setups.model_flops(recipe, index),
                    frozen=None if start is None else start.frozen,
                    describe=batches.describe,
                    initial=None if start is None else start.params,
                    fallbacks=recipe.mesh.fallbacks,
                    until=until,
                    followed=followed,
                    memory_advice=step_memory.advice(recipe, mesh, where),
                )
            )
    finally:
        for reporter in reporters:
            reporter.close()
    return int(done.step)
