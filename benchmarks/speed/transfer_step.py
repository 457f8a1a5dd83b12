"""What a stage of progressive transfer costs: compile time and time of a step, first layers beside last ones.

    python -m benchmarks speed.transfer_step --layers=12

Teacher and student are those of mobilebert_transfer, cut to --layers, with random parameters and tokens. The steps of
the stages take turns; operations are those of their jaxprs.
"""

import statistics
import tempfile
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lib import results
from bertzoo.core import config
from bertzoo.runs import experiments, transfer
from bertzoo.runs.configs import Transfer
from bertzoo.runs.experiments import batch_shapes
from bertzoo.train import optim, sharding
from bertzoo.train import state as states
from bertzoo.train.state import name_of
from bertzoo.train.step import make_train_step


def recipe_of(layers: int, rows: int, length: int) -> Transfer:
    """mobilebert_transfer, cut down, in float32."""
    values = {"transfer.batch_size": rows, "transfer.max_length": length, "distillation.0.batch_size": rows}
    values |= {"distillation.0.max_length": length, "model.layers": layers, "teacher.layers": layers}
    values |= {"compute.dtype": "float32", "knowledge.dtype": "float32"}
    return config.load(Transfer, ["mobilebert_transfer"], [(key, str(value)) for key, value in values.items()])


def batch_of(recipe: Transfer, index: int, rows: int) -> dict[str, jax.Array]:
    """A stage's batch of random tokens, all of which count."""
    random, batch = np.random.default_rng(0), {}
    for name, leaf in batch_shapes(recipe, index, rows).items():
        low, high = {"masked_positions": (1, 20), "input_ids": (5, 30000), "masked_ids": (5, 30000)}.get(name, (0, 2))
        ones = "weight" in name or name.endswith("mask")
        values = np.ones(leaf.shape) if ones else random.integers(low, high, leaf.shape)
        batch[name] = jnp.asarray(values.astype(leaf.dtype))
    return batch


def teacher_parameters(shapes: Any) -> Any:
    """Random parameters of the teacher, of these shapes and mapped from a file, as a run holds them on CPUs."""
    most = max(leaf.size for leaf in jax.tree.leaves(shapes))
    values = 0.02 * np.random.default_rng(0).standard_normal(most, np.float32)

    def draw(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        own = values[: leaf.size].reshape(leaf.shape) + np.float32(name_of(path[-1:]) == "scale")
        mapped = transfer.map_array(own.astype(leaf.dtype), file)
        return jax.make_array_from_callback(leaf.shape, leaf.sharding, mapped.__getitem__)

    with tempfile.TemporaryFile() as file:
        return jax.tree.map_with_path(draw, shapes)


def main() -> None:
    """Compile and time the stages of the first, a middle and the last layer, and the distillation."""
    parser = results.parser("transfer_step", __doc__)
    results.add_numbers(parser, layers=12, rows=8, length=64, rounds=7)
    args = parser.parse_args()
    recipe = recipe_of(args.layers, args.rows, args.length)
    built = experiments.build_experiment(recipe)
    frozen, mesh = teacher_parameters(built.frozen_shapes), sharding.make_mesh(sharding.Mesh(), jax.devices()[:1])
    stages = sorted({0, args.layers // 2 - 1, args.layers - 1, args.layers} - {-1})
    running, compiling = {}, {}
    for index in stages:
        setup = built.setups[index]
        optimizer = optim.build(setup.optimizer, 1_000_000, rates=setup.rates)
        state, batch = states.fresh(setup.objective, optimizer, mesh, 0), batch_of(recipe, index, args.rows)
        start = time.perf_counter()
        step: Any = make_train_step(setup.trained, optimizer)
        running[index] = step.lower(state, frozen, batch).compile(), state, batch
        compiling[index] = time.perf_counter() - start
    times: dict[int, list[float]] = {index: [] for index in stages}
    for _ in range(args.rounds):
        for index, (step, state, batch) in running.items():
            start = time.perf_counter()
            state, _ = jax.block_until_ready(step(state, frozen, batch))
            times[index].append(time.perf_counter() - start)
            running[index] = step, state, batch
    seconds = {index: statistics.median(times[index]) for index in stages}
    flops = {index: built.flops(index) for index in stages}
    last = args.layers - 1
    rows = [
        {
            "stage": built.setups[index].name,
            "a step, of the last layer's": round(seconds[index] / seconds[last], 2),
            "operations of a row, of the last layer's": round(flops[index] / flops[last], 2),
            "a step, s": round(seconds[index], 1),
            "GFLOP a row": round(flops[index] / 1e9, 1),
            "to compile, s": round(compiling[index], 1),
        }
        for index in stages
    ]
    sizes = f"{args.layers} layers, {args.rows} rows of {args.length} tokens"
    results.write(args.out, [sizes, results.packages("jax")], {"stages": rows})
