"""Puts a recipe, its feed and its directory together into a training job."""

import functools

import flax.linen as nn
import jax

from bertzoo.feed import Feed
from bertzoo.flops import matmul_flops
from bertzoo.objectives import Objective
from bertzoo.recipe import Pretrain
from bertzoo.rundir import RunDirectory
from bertzoo.train import loop, sharding
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.progress import Console, JsonLines, TensorBoard


def train(recipe: Pretrain, feed: Feed, run: RunDirectory) -> int:
    """Train from the newest checkpoint to the end and return the number of steps done; raises as the loop does."""
    mesh = sharding.make_mesh(recipe.mesh)
    objective = recipe.objective.build(recipe.model, recipe.compute)
    run.describe([f"{device.platform} {device.device_kind}" for device in jax.devices()])
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    reporters = [JsonLines(run.metrics), TensorBoard(run.tensorboard), Console(recipe.stages)]
    try:
        with Checkpoints(
            run.checkpoints, keep_last=recipe.run.keep_last, keep_best=recipe.run.keep_best
        ) as checkpoints:
            state = loop.run(
                loop.Job(
                    objective=objective,
                    stages=recipe.stages,
                    optimizer=recipe.optimizer,
                    config=recipe.run,
                    mesh=mesh,
                    seed=recipe.seed,
                    batches=feed.train,
                    heldout=functools.partial(feed.heldout, rows=recipe.run.evaluate_rows, shards=shards),
                    checkpoints=checkpoints,
                    reporters=reporters,
                    flops_per_example=[
                        flops_per_example(objective, feed, index) for index in range(len(recipe.stages))
                    ],
                    describe=feed.describe,
                )
            )
    finally:
        for reporter in reporters:
            reporter.close()
    return int(state.step)


def flops_per_example(objective: Objective, feed: Feed, index: int) -> int:
    """Model operations of one row of a stage; the backward pass has two products for every one of the forward."""
    params = nn.meta.unbox(jax.eval_shape(objective.init, jax.random.key(0)))
    return 3 * matmul_flops(lambda params, batch: objective(params, None, batch, None), params, feed.example(index))
