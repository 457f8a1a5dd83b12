"""Formulations of a dynamic convolution: CPU milliseconds and memory on one core.

    python -m benchmarks speed.dynamic_convolution

These figures decide `bertzoo.nn.dynamic_convolution` and `bertzoo.nn.depthwise_convolution`. Sizes are ConvBERT-base's
(8×128 rows, 6 heads of 64, windows of 9; the span key's 768 channels, float32). Formulations take turns; a ratio is to
the first of them (unfolded copies; XLA's convolution), and memory is the compiled call's temporaries. All formulations
are checked to agree first. Those that the package does not use are defined here.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lib import jitted, results
from bertzoo.nn import depthwise_convolution, dynamic_convolution

Product = Callable[[jax.Array, jax.Array], jax.Array]


def gathered(x_BLHJ: jax.Array, kernel_BLHW: jax.Array) -> jax.Array:
    """Unfolded by a gather, as the reference code, then one product."""
    window, length = kernel_BLHW.shape[-1], x_BLHJ.shape[1]
    padded = jnp.pad(x_BLHJ, ((0, 0), (window // 2, window // 2), (0, 0), (0, 0)))
    x_BLWHJ = padded[:, np.arange(length)[:, None] + np.arange(window)]
    return jnp.einsum("blwhj,blhw->blhj", x_BLWHJ, kernel_BLHW)


def depthwise_lax(x_BLD: jax.Array, kernel: jax.Array) -> jax.Array:
    """XLA's convolution with as many groups as channels."""
    numbers = ("NWC", "WIO", "NWC")
    return jax.lax.conv_general_dilated(
        x_BLD, kernel[:, None], (1,), "SAME", dimension_numbers=numbers, feature_group_count=x_BLD.shape[-1]
    )


DYNAMIC: dict[str, Product] = {"unfold (gather)": gathered, "slices": dynamic_convolution}
DEPTHWISE: dict[str, Product] = {"convolution": depthwise_lax, "slices": depthwise_convolution}


def compare(kind: str, forms: dict[str, Product], arguments: tuple[Any, Any], rounds: int) -> list[dict[str, Any]]:
    """Check that the forms agree and time them; the first is the reference."""
    reference, *others = (jax.tree.leaves(jax.jit(jitted.with_gradients(form))(*arguments)) for form in forms.values())
    for name, outputs in zip(list(forms)[1:], others, strict=True):
        for ours, theirs in zip(outputs, reference, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * float(jnp.abs(theirs).max()), err_msg=name)
    rows = [{"convolution": kind, "form": name} for name in forms]
    for suffix in ("forward", "and backward"):
        wrap = jitted.with_gradients if suffix == "and backward" else lambda form: form
        times = jitted.time_in_turns({name: wrap(form) for name, form in forms.items()}, arguments, rounds)
        slowest = next(iter(times.values()))[0]
        for row, (milliseconds, mib) in zip(rows, times.values(), strict=True):
            row |= {f"{suffix}, ms": round(milliseconds, 2), f"{suffix}, ratio": round(milliseconds / slowest, 2)}
            row |= {f"{suffix}, MiB": round(mib, 1)}
    return rows


def main() -> None:
    """Measure and write the result."""
    parser = results.parser("dynamic_convolution", __doc__)
    results.add_numbers(parser, rounds=15, rows=8, length=128, heads=6, head_size=64, window=9)
    args = parser.parse_args()
    jitted.use_one_core()
    random = np.random.default_rng(0)

    def array(*shape: int) -> jax.Array:
        return jnp.asarray(random.normal(size=shape).astype(np.float32))

    shape, channels = (args.rows, args.length, args.heads), 2 * args.heads * args.head_size
    dynamic = array(*shape, args.head_size), jax.nn.softmax(array(*shape, args.window))
    rows = compare("dynamic", DYNAMIC, dynamic, args.rounds)
    rows += compare("depthwise", DEPTHWISE, (array(*shape[:2], channels), array(args.window, channels)), args.rounds)
    sizes = f"{args.rows}x{args.length} rows, {args.heads} heads of {args.head_size}, window {args.window}"
    results.write(args.out, [sizes], {"forms": rows})
