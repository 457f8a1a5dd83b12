"""Milliseconds of the grouped layer's lowerings, forward and forward + backward: `python benchmarks/grouped.py`.

What decides `Compute.grouped`: SqueezeBERT's own sizes (8×128 rows, 4 groups), one thread, float32. The variants take
turns and the medians of their CPU times are printed, so that what other processes take away does not count.
`interleaved` is the einsum that leaves the groups where they lie, which `grouped_einsum` does not; `floor` is the
number of multiplications at the speed of a dense product.
"""

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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


def both(function: Callable[..., jax.Array], *primals: jax.Array) -> Any:
    """The output, and the gradients of half its squared norm."""
    y, pull = jax.vjp(function, *primals)
    return y, pull(y)


def compiled(function: Callable[..., Any], arguments: tuple[jax.Array, ...]) -> Callable[[], float]:
    """A call -> its CPU seconds."""
    call = jax.jit(function).lower(*arguments).compile()

    def run() -> float:
        start = time.process_time()
        jax.block_until_ready(call(*arguments))
        return time.process_time() - start

    run()
    return run


def measure(calls: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median milliseconds, the calls taking turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(call())
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="The grouped layer's lowerings, forward and forward + backward.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--groups", type=int, default=4)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # before jax starts its thread pool
    random = np.random.default_rng(0)

    def array(*shape: int) -> jax.Array:
        return jnp.asarray(random.normal(0, 0.05, shape).astype(np.float32))

    def rows(channels: int) -> jax.Array:
        return array(options.rows, options.length, channels)

    shape_up, shape_down = (1, WIDTH // options.groups, FEED_FORWARD), (1, FEED_FORWARD // options.groups, WIDTH)
    up, down = array(*shape_up), array(*shape_down)
    cases = {
        f"{WIDTH} -> {FEED_FORWARD}": (product, (rows(WIDTH), up)),
        f"{FEED_FORWARD} -> {WIDTH}": (product, (rows(FEED_FORWARD), down)),
        "feed-forward": (feed_forward, (rows(WIDTH), up, down)),
    }
    header = [f"{f'{name}, {what}':>24s}" for name in cases for what in ("fwd", "fwd+bwd")]
    print(f"{options.rows}x{options.length}, {options.groups} groups, one thread, float32, CPU milliseconds")
    print(" ".join([f"{'':12s}", *header]))
    table: dict[str, list[float]] = {name: [] for name in [*LOWERINGS, "floor"]}
    dense_x, dense_kernel = rows(WIDTH), array(1, WIDTH, FEED_FORWARD)
    floors = measure({"fwd": compiled(dense, (dense_x, dense_kernel))}, options.rounds)["fwd"] / options.groups
    for function, arguments in cases.values():
        products = len(arguments) - 1
        for wrap, factor in ((None, 1), (both, 3)):
            calls = {}
            for lowering, multiply in LOWERINGS.items():
                bound = functools.partial(function, multiply, options.groups)
                calls[lowering] = compiled(bound if wrap is None else functools.partial(wrap, bound), arguments)
            for lowering, milliseconds in measure(calls, options.rounds).items():
                table[lowering].append(milliseconds)
            table["floor"].append(floors * products * factor)
    for name, cells in table.items():
        print(" ".join([f"{name:12s}", *(f"{cell:24.1f}" for cell in cells)]))


if __name__ == "__main__":
    main()
