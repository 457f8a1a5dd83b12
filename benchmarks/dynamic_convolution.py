"""Milliseconds and working memory of a dynamic convolution's formulations: `python benchmarks/dynamic_convolution.py`.

What decides `bertzoo.nn.dynamic_convolution` and `bertzoo.nn.depthwise_convolution`: ConvBERT-base's sizes (8×128 rows,
6 heads of 64, windows of 9; the span key's 768 channels), one thread, float32. The formulations take turns; each cell
is the median of CPU times, its ratio to the reference form's (the unfolded copies; XLA's convolution), and the
temporary bytes of the compiled call. All formulations agree, which is checked first. Those that lost stand only here.
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

from bertzoo.nn import depthwise_convolution, dynamic_convolution

Product = Callable[[jax.Array, jax.Array], jax.Array]


def windows(x: jax.Array, window: int) -> list[jax.Array]:
    """(B,L,...) -> W arrays (B,L,...): x shifted, with zeros beyond its ends."""
    padded = jnp.pad(x, ((0, 0), (window // 2, window // 2), *[(0, 0)] * (x.ndim - 2)))
    return [padded[:, tap : tap + x.shape[1]] for tap in range(window)]


def stacked(x_BLHJ: jax.Array, kernel_BLHW: jax.Array) -> jax.Array:
    """Unfolded by stacking the shifted copies, then one product."""
    x_BLHJW = jnp.stack(windows(x_BLHJ, kernel_BLHW.shape[-1]), axis=-1)
    return jnp.einsum("blhjw,blhw->blhj", x_BLHJW, kernel_BLHW)


def gathered(x_BLHJ: jax.Array, kernel_BLHW: jax.Array) -> jax.Array:
    """Unfolded by a gather, as the reference code, then one product."""
    window, length = kernel_BLHW.shape[-1], x_BLHJ.shape[1]
    padded = jnp.pad(x_BLHJ, ((0, 0), (window // 2, window // 2), (0, 0), (0, 0)))
    x_BLWHJ = padded[:, np.arange(length)[:, None] + np.arange(window)]
    return jnp.einsum("blwhj,blhw->blhj", x_BLWHJ, kernel_BLHW)


def patches(x_BLHJ: jax.Array, kernel_BLHW: jax.Array) -> jax.Array:
    """Unfolded by a depthwise convolution with unit kernels, then one product."""
    rows, length, heads, size = x_BLHJ.shape
    window = kernel_BLHW.shape[-1]
    x_BLC = jax.lax.conv_general_dilated_patches(
        x_BLHJ.reshape(rows, length, -1), (window,), (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    )
    return jnp.einsum("blhjw,blhw->blhj", x_BLC.reshape(rows, length, heads, size, window), kernel_BLHW)


def banded(x_BLHJ: jax.Array, kernel_BLHW: jax.Array) -> jax.Array:
    """A product with the (L, L+W-1) band that holds each position's kernel, made by padding and reshaping."""
    rows, length, heads, _ = x_BLHJ.shape
    window = kernel_BLHW.shape[-1]
    x_BMHJ = jnp.pad(x_BLHJ, ((0, 0), (window // 2, window // 2), (0, 0), (0, 0)))
    spread = jnp.pad(kernel_BLHW.swapaxes(1, 2), ((0, 0), (0, 0), (0, 0), (0, length)))
    # Rows one shorter than they were written move each row one place to the right of the last.
    flat = spread.reshape(rows, heads, -1)[..., : length * (length + window - 1)]
    band_BHLM = flat.reshape(rows, heads, length, length + window - 1)
    return jnp.einsum("bhlm,bmhj->blhj", band_BHLM, x_BMHJ)


def differentiated(x_BLHJ: jax.Array, kernel_BLHW: jax.Array) -> jax.Array:
    """The shifted slices as `dynamic_convolution` has them, its backward pass left to automatic differentiation."""
    taps = enumerate(windows(x_BLHJ, kernel_BLHW.shape[-1]))
    return sum((kernel_BLHW[..., tap, None] * x for tap, x in taps), jnp.zeros_like(x_BLHJ))


def depthwise_lax(x_BLD: jax.Array, kernel: jax.Array) -> jax.Array:
    """XLA's convolution with as many groups as channels."""
    numbers = ("NWC", "WIO", "NWC")
    return jax.lax.conv_general_dilated(
        x_BLD, kernel[:, None], (1,), "SAME", dimension_numbers=numbers, feature_group_count=x_BLD.shape[-1]
    )


def depthwise_stacked(x_BLD: jax.Array, kernel: jax.Array) -> jax.Array:
    """Unfolded by stacking the shifted copies."""
    return jnp.einsum("blwd,wd->bld", jnp.stack(windows(x_BLD, len(kernel)), axis=2), kernel)


def depthwise_differentiated(x_BLD: jax.Array, kernel: jax.Array) -> jax.Array:
    """The shifted slices of `depthwise_convolution`, its backward pass left to automatic differentiation."""
    return sum((kernel[tap] * x for tap, x in enumerate(windows(x_BLD, len(kernel)))), jnp.zeros_like(x_BLD))


DYNAMIC: dict[str, Product] = {
    "unfold (gather)": gathered,
    "unfold (stack)": stacked,
    "unfold (depthwise)": patches,
    "banded product": banded,
    "slices, autodiff": differentiated,
    "slices": dynamic_convolution,
}
DEPTHWISE: dict[str, Product] = {
    "convolution": depthwise_lax,
    "unfold (stack)": depthwise_stacked,
    "slices, autodiff": depthwise_differentiated,
    "slices": depthwise_convolution,
}


def both(function: Product, x: jax.Array, kernel: jax.Array) -> Any:
    """The output, and the gradients of half its squared norm."""
    y, pull = jax.vjp(function, x, kernel)
    return y, pull(y)


def compiled(function: Callable[..., Any], arguments: tuple[jax.Array, ...]) -> tuple[Callable[[], float], float]:
    """A call -> its CPU seconds; and the MiB of its temporaries."""
    call = jax.jit(function).lower(*arguments).compile()
    memory = call.memory_analysis()
    assert memory is not None, "this backend does not say what memory a compiled call takes"

    def run() -> float:
        start = time.process_time()
        jax.block_until_ready(call(*arguments))
        return time.process_time() - start

    run()
    return run, memory.temp_size_in_bytes / 2**20


def compare(forms: dict[str, Product], arguments: tuple[jax.Array, jax.Array], rounds: int) -> None:
    """Check that the forms agree, and print a line for each; the first is the reference."""
    reference = jax.tree.leaves(jax.jit(functools.partial(both, next(iter(forms.values()))))(*arguments))
    for name, form in forms.items():
        for ours, theirs in zip(
            jax.tree.leaves(jax.jit(functools.partial(both, form))(*arguments)), reference, strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * float(jnp.abs(theirs).max()), err_msg=name)
    cells: dict[str, list[str]] = {name: [] for name in forms}
    for wrap in (lambda form: form, lambda form: functools.partial(both, form)):
        calls = {name: compiled(wrap(form), arguments) for name, form in forms.items()}
        times: dict[str, list[float]] = {name: [] for name in forms}
        for _ in range(rounds):
            for name, (call, _) in calls.items():
                times[name].append(call())
        medians = {name: statistics.median(values) for name, values in times.items()}
        slowest = medians[next(iter(forms))]
        for name, (_, memory) in calls.items():
            cells[name].append(f"{1e3 * medians[name]:7.2f} ms {medians[name] / slowest:6.2f} {memory:7.1f} MiB")
    for name, row in cells.items():
        print(f"  {name:20s}", *(f"{cell:>32s}" for cell in row))


def main() -> None:
    parser = argparse.ArgumentParser(description="A dynamic convolution's formulations, forward and forward+backward.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--head_size", type=int, default=64)
    parser.add_argument("--window", type=int, default=9)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # before jax starts its thread pool
    random = np.random.default_rng(0)

    def array(*shape: int) -> jax.Array:
        return jnp.asarray(random.normal(size=shape).astype(np.float32))

    shape = options.rows, options.length, options.heads
    print(f"{options.rows}x{options.length}, {options.heads} heads of {options.head_size}, window {options.window}")
    print(f"  {'':20s} {'forward, ratio, temporaries':>32s} {'and backward':>32s}")
    print("dynamic convolution")
    compare(DYNAMIC, (array(*shape, options.head_size), jax.nn.softmax(array(*shape, options.window))), options.rounds)
    channels = 2 * options.heads * options.head_size
    print(f"depthwise convolution of {channels} channels")
    compare(DEPTHWISE, (array(*shape[:2], channels), array(options.window, channels)), options.rounds)


if __name__ == "__main__":
    main()
