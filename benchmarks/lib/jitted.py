"""Compiled functions timed in turns on one core, by CPU time, so that other processes do not count."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


def use_one_core() -> None:
    """Keep this process to one core; call it before JAX starts its thread pool."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])


def with_gradients(function: Callable[..., jax.Array]) -> Callable[..., Any]:
    """The function's output, and the gradients of half its squared norm."""

    def both(*primals: jax.Array) -> Any:
        y, pull = jax.vjp(function, *primals)
        return y, pull(y)

    return both


def time_in_turns(
    functions: Mapping[str, Callable[..., Any]], arguments: tuple[jax.Array, ...], rounds: int
) -> dict[str, tuple[float, float]]:
    """By function the median milliseconds of CPU time, and the MiB of temporaries of its compiled program."""
    programs = {name: jax.jit(function).lower(*arguments).compile() for name, function in functions.items()}
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds + 1):  # the first round warms up
        for name, program in programs.items():
            start = time.process_time()
            jax.block_until_ready(program(*arguments))
            times[name].append(time.process_time() - start)
    return {
        name: (1e3 * statistics.median(times[name][1:]), program.memory_analysis().temp_size_in_bytes / 2**20)
        for name, program in programs.items()
    }
