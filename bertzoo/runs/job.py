"""Puts a recipe, its feed and its directory together into a training job."""

import functools
from collections.abc import Sequence

import jax

from bertzoo.runs import phases
from bertzoo.runs.batches import Feed
from bertzoo.runs.bucket import Sender
from bertzoo.runs.run_dir import ORIGINS, RunDirectory
from bertzoo.runs.teacher import Taught
from bertzoo.runs.transfer_config import Recipe
from bertzoo.runs.warm_start import Start
from bertzoo.train import hosts, loop, restore, sharding, state
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.phase import Phase
from bertzoo.train.progress import Console, JsonLines, Reporter, TensorBoard
from bertzoo.train.stages import locate, stage_of


def devices(recipe: Recipe) -> jax.sharding.Mesh:
    """The mesh of all devices; raises ConfigError where the recipe's model cannot be built or does not fit them."""
    mesh = sharding.make_mesh(recipe.mesh)
    for stage in recipe.stages:
        sharding.check_rows(stage.batch_size, stage.accumulate, mesh)
    objective = phases.of(recipe)[0].objective
    sharding.shardings(state.boxed_shapes(objective), mesh, recipe.mesh.fallbacks)
    return mesh


def check(recipe: Recipe, run: RunDirectory, mesh: jax.sharding.Mesh) -> None:
    """Raise CheckpointError where the run's newest checkpoint is of another model or optimiser than the recipe's."""
    step = run.latest()
    if step is None:
        return
    phase = phases.of(recipe)[stage_of(recipe.stages, step)]
    abstract = state.abstract(phase.objective, phase.transformation(1), mesh, recipe.mesh.fallbacks)
    restore.check(run.checkpoints, abstract)


def train(
    recipe: Recipe,
    feed: Feed,
    run: RunDirectory,
    mesh: jax.sharding.Mesh,
    start: Start | Taught | None = None,
    until: int | None = None,
    made: Sequence[Phase] | None = None,
    followed: bool = False,
    console: bool = True,
) -> int:
    """Train from the newest checkpoint to the end and return the number of steps done; raises as the loop does.

    start: what a run without a checkpoint begins with, and what it reads beside; until: the step to stop after; made:
    other phases than the recipe's own; followed: whether other runs come after it; console: print a line of
    progress now and then to standard error. Of several processes the first
    writes all but the checkpoints.
    """

    def begin() -> None:
        if done := run.latest():
            locate(recipe.stages, done)
        run.begin(recipe)
        kinds = [f"{device.platform} {device.device_kind}" for device in jax.devices()]
        origins = {name: record for name in ORIGINS if (record := run.origin(name))}
        if not done:
            origins = {} if start is None else {start.name: start.record}
        run.describe(kinds, jax.process_count(), feed.corpus, origins)

    hosts.share("the plans of the rows", feed.check)
    feed.check()
    made = phases.of(recipe) if made is None else made
    hosts.share("the run directory", begin)
    own = functools.partial(sharding.own_rows, mesh=mesh)
    reporters: list[Reporter] = []
    if hosts.is_first():
        reporters = [JsonLines(run.metrics), TensorBoard(run.tensorboard)]
        reporters += [Console(recipe.stages)] if console else []
        reporters += [Sender(run.mirror)] if run.mirror else []  # after those whose files it sends
    try:
        with Checkpoints(
            run.checkpoints,
            keep_last=recipe.run.keep_last,
            keep_best=recipe.run.keep_best,
            ready=run.mirror and run.mirror.before_a_save,
        ) as checkpoints:
            done = loop.run(
                loop.Job(
                    phases=made,
                    stages=recipe.stages,
                    config=recipe.run,
                    mesh=mesh,
                    seed=recipe.seed,
                    batches=functools.partial(feed.train, own=own),
                    heldout=functools.partial(
                        feed.heldout, rows=recipe.run.evaluate_rows, shards=sharding.row_shards(mesh), own=own
                    ),
                    checkpoints=checkpoints,
                    reporters=reporters,
                    flops_per_example=lambda index, batch: phases.model_flops(recipe, index),
                    frozen=None if start is None else start.frozen,
                    describe=feed.describe,
                    initial=None if start is None else start.params,
                    fallbacks=recipe.mesh.fallbacks,
                    until=until,
                    followed=followed,
                )
            )
    finally:
        for reporter in reporters:
            reporter.close()
    return int(done.step)
