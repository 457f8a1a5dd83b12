"""Lowerings of the grouped layer, forward and forward with backward, in CPU milliseconds on one core.

    python -m benchmarks speed.grouped

These figures decide `Compute.grouped`. Sizes are SqueezeBERT's (8×128 rows, 4 groups, float32). `interleaved` is an
einsum that leaves the groups where they lie, which `grouped_einsum` does not; `floor` is the number of multiplications
at the speed of a dense product.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lib import jitted, results
from bertzoo.models.compute import ACTIVATIONS
from bertzoo.nn import grouped_convolution, grouped_einsum

WIDTH, FEED_FORWARD = 768, 3072
Product = Callable[[jax.Array, jax.Array, int], jax.Array]


def interleaved(x_BLI: jax.Array, kernel: jax.Array, groups: int) -> jax.Array:
    """(B,L,I) * (1,I/G,O) -> (B,L,O) by one einsum over the channels as they lie."""
    _, inputs, outputs = kernel.shape
    x_BLGI = x_BLI.reshape(*x_BLI.shape[:-1], groups, inputs)
    kernel_IGO = kernel.reshape(inputs, groups, outputs // groups)
    return jnp.einsum("blgi,igo->blgo", x_BLGI, kernel_IGO).reshape(*x_BLI.shape[:-1], outputs)


LOWERINGS: dict[str, Product] = {
    "einsum": grouped_einsum,
    "convolution": grouped_convolution,
    "interleaved": interleaved,
}


def product(lowering: Product, groups: int, x: jax.Array, kernel: jax.Array) -> jax.Array:
    return lowering(x, kernel, groups)


def feed_forward(lowering: Product, groups: int, x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    return lowering(ACTIVATIONS["gelu"](lowering(x, up, groups)), down, groups)


def dense(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return x.reshape(-1, x.shape[-1]) @ kernel[0]


def main() -> None:
    """Measure and write the result."""
    parser = results.parser("grouped", __doc__)
    results.add_numbers(parser, rounds=15, rows=8, length=128, groups=4)
    args = parser.parse_args()
    jitted.use_one_core()
    random = np.random.default_rng(0)

    def array(*shape: int) -> jax.Array:
        return jnp.asarray(random.normal(0, 0.05, shape).astype(np.float32))

    narrow, wide = (array(args.rows, args.length, width) for width in (WIDTH, FEED_FORWARD))
    up = array(1, WIDTH // args.groups, FEED_FORWARD)
    down = array(1, FEED_FORWARD // args.groups, WIDTH)
    cases = {
        f"{WIDTH} -> {FEED_FORWARD}": (product, (narrow, up)),
        f"{FEED_FORWARD} -> {WIDTH}": (product, (wide, down)),
        "feed-forward": (feed_forward, (narrow, up, down)),
    }
    kernel = array(1, WIDTH, FEED_FORWARD)
    floor = jitted.time_in_turns({"dense": dense}, (narrow, kernel), args.rounds)["dense"][0] / args.groups
    rows: dict[str, dict[str, Any]] = {name: {"lowering": name} for name in (*LOWERINGS, "floor")}
    for case, (function, arguments) in cases.items():
        bound = {name: functools.partial(function, lowering, args.groups) for name, lowering in LOWERINGS.items()}
        backward = {name: jitted.with_gradients(call) for name, call in bound.items()}
        for suffix, calls, factor in (("forward", bound, 1), ("and backward", backward, 3)):
            for name, (milliseconds, _) in jitted.time_in_turns(calls, arguments, args.rounds).items():
                rows[name][f"{case}, {suffix}"] = round(milliseconds, 1)
            rows["floor"][f"{case}, {suffix}"] = round(floor * factor * (len(arguments) - 1), 1)
    context = [f"{args.rows}x{args.length} rows, {args.groups} groups"]
    results.write(args.out, context, {"lowerings": list(rows.values())})
