"""Puts a recipe, its feed and its directory together into a training job."""

import functools

import flax.linen as nn
import jax

from bertzoo.feed import Feed
from bertzoo.flops import matmul_flops
from bertzoo.mirror import Sender
from bertzoo.objectives import Objective
from bertzoo.recipe import Pretrain
from bertzoo.rundir import RunDirectory
from bertzoo.start import Start
from bertzoo.train import checkpoint, hosts, loop, optim, sharding, state
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.progress import Console, JsonLines, Reporter, TensorBoard
from bertzoo.train.stages import locate


def devices(recipe: Pretrain) -> jax.sharding.Mesh:
    """The mesh of all devices; raises ConfigError where the recipe's model cannot be built or does not fit them."""
    mesh = sharding.make_mesh(recipe.mesh)
    for stage in recipe.stages:
        sharding.check_rows(stage.batch_size, stage.accumulate, mesh)
    objective = recipe.objective.build(recipe.model, recipe.compute)
    sharding.shardings(jax.eval_shape(objective.init, jax.random.key(0)), mesh, recipe.mesh.fallbacks)
    return mesh


def check(recipe: Pretrain, run: RunDirectory, mesh: jax.sharding.Mesh) -> None:
    """Raise CheckpointError where the run's newest checkpoint is of another model or optimiser than the recipe's."""
    objective = recipe.objective.build(recipe.model, recipe.compute)
    checkpoint.check(
        run.checkpoints, state.abstract(objective, optim.build(recipe.optimizer, 1), mesh, recipe.mesh.fallbacks)
    )


def train(recipe: Pretrain, feed: Feed, run: RunDirectory, mesh: jax.sharding.Mesh, start: Start | None = None) -> int:
    """Train from the newest checkpoint to the end and return the number of steps done; raises as the loop does.

    start: what a run without a checkpoint begins with. Of several processes the first writes all but the checkpoints.
    """

    def begin() -> None:
        if done := run.latest():
            locate(recipe.stages, done)
        run.begin(recipe)
        kinds = [f"{device.platform} {device.device_kind}" for device in jax.devices()]
        origin = run.origin() if done else start.record if start else None
        run.describe(kinds, jax.process_count(), feed.corpus, origin)

    hosts.share("the plans of the rows", feed.check)
    feed.check()
    objective = recipe.objective.build(recipe.model, recipe.compute)
    hosts.share("the run directory", begin)
    own = functools.partial(sharding.own_rows, mesh=mesh)
    reporters: list[Reporter] = []
    if hosts.is_first():
        reporters = [JsonLines(run.metrics), TensorBoard(run.tensorboard), Console(recipe.stages)]
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
                    objective=objective,
                    stages=recipe.stages,
                    optimizer=recipe.optimizer,
                    config=recipe.run,
                    mesh=mesh,
                    seed=recipe.seed,
                    batches=functools.partial(feed.train, own=own),
                    heldout=functools.partial(
                        feed.heldout, rows=recipe.run.evaluate_rows, shards=sharding.row_shards(mesh), own=own
                    ),
                    checkpoints=checkpoints,
                    reporters=reporters,
                    flops_per_example=[
                        flops_per_example(objective, feed, index) for index in range(len(recipe.stages))
                    ],
                    describe=feed.describe,
                    initial=None if start is None else start.params,
                    fallbacks=recipe.mesh.fallbacks,
                )
            )
    finally:
        for reporter in reporters:
            reporter.close()
    return int(done.step)


def flops_per_example(objective: Objective, feed: Feed, index: int) -> int:
    """Model operations of one row of a stage; the backward pass has two products for every one of the forward."""
    params = nn.meta.unbox(jax.eval_shape(objective.init, jax.random.key(0)))
    return 3 * matmul_flops(lambda params, batch: objective(params, None, batch, None), params, feed.example(index))
