"""What a stage of progressive transfer costs: time to compile and time of a step, first layers beside last ones.

    python benchmarks/transfer_step.py --layers=12

Teacher and student are those of mobilebert_transfer, cut to --layers, with random parameters and tokens; the steps of
the stages are interleaved and their medians printed, with the operations that their jaxprs have.
"""

import argparse
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bertzoo.core import config
from bertzoo.models.partial import stack
from bertzoo.runs import phases
from bertzoo.runs.batches import batch_shapes
from bertzoo.runs.transfer_config import Transfer
from bertzoo.train import optim, sharding
from bertzoo.train import state as states
from bertzoo.train.step import make_train_step


def recipe_of(layers: int, rows: int, length: int) -> Transfer:
    """The config, cut down."""
    sizes = {"transfer.batch_size": rows, "transfer.max_length": length, "distillation.0.batch_size": rows}
    sizes |= {"distillation.0.max_length": length, "model.layers": layers, "teacher.layers": layers}
    fixed = [("compute.dtype", "float32"), ("knowledge.dtype", "float32")]
    return config.load(
        Transfer, ["mobilebert_transfer"], [*fixed, *((key, str(value)) for key, value in sizes.items())]
    )


def batch_of(recipe: Transfer, index: int, rows: int) -> dict[str, jax.Array]:
    """Random tokens, all of which count."""
    random, made = np.random.default_rng(0), {}
    for name, leaf in batch_shapes(recipe, index, rows).items():
        low, high = {"masked_positions": (1, 20), "input_ids": (5, 30000), "masked_ids": (5, 30000)}.get(name, (0, 2))
        ones = "weight" in name or name.endswith("mask")
        filled = np.ones(leaf.shape) if ones else random.integers(low, high, leaf.shape)
        made[name] = jnp.asarray(filled.astype(leaf.dtype))
    return made


def teacher_parameters(recipe: Transfer) -> Any:
    """Random ones, as the objectives read them."""
    model, ids = phases.teacher_of(recipe).model, jnp.ones((1, 4), jnp.int32)
    params = nn.unbox(jax.jit(model.init)(jax.random.key(0), ids, ids, ids, ids)["params"])
    return {"model": stack(params, model.encoder.layers)}  # type: ignore[attr-defined]


def main() -> None:
    """Compile, time and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    recipe = recipe_of(args.layers, args.rows, args.length)
    frozen, mesh = teacher_parameters(recipe), sharding.make_mesh(sharding.Mesh(), jax.devices()[:1])
    shown = sorted({0, args.layers // 2 - 1, args.layers - 1, args.layers})
    running: dict[int, tuple[Any, Any, Any]] = {}
    compiling: dict[int, float] = {}
    for index in shown:
        setup = phases.of(recipe)[index]
        optimizer = optim.build(setup.optimizer, 1_000_000, rates=setup.rates)
        state = states.fresh(setup.objective, optimizer, mesh, 0)
        batch, began = batch_of(recipe, index, args.rows), time.perf_counter()
        step = make_train_step(setup.trained, optimizer).lower(state, frozen, batch).compile()  # type: ignore[attr-defined]
        compiling[index] = time.perf_counter() - began
        running[index] = step, state, batch
    times: dict[int, list[float]] = {index: [] for index in shown}
    for _ in range(args.rounds):
        for index, (step, state, batch) in running.items():
            began = time.perf_counter()
            state, _ = jax.block_until_ready(step(state, frozen, batch))
            times[index].append(time.perf_counter() - began)
            running[index] = step, state, batch
    last = statistics.median(times[args.layers - 1])
    most = phases.model_flops(recipe, args.layers - 1)
    for index in shown:
        median, flops = statistics.median(times[index]), phases.model_flops(recipe, index)
        name = phases.of(recipe)[index].name
        print(
            f"{name:28}  {median * 1e3:7.0f} ms a step, {median / last:.2f} of the last layer's  "
            f"{flops / 1e9:7.2f} GFLOP a row, {flops / most:.2f} of it  {compiling[index]:5.1f} s to compile"
        )


if __name__ == "__main__":
    main()
