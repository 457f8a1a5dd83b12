"""Matrix products in bfloat16 that use the bfloat16 instructions of CPUs.

XLA's CPU backend uses these instructions only for products with a float32 result and row-major matrices (the right
matrix may be transposed). For all other products, it first converts the matrices to float32. On a CPU with the
instructions, the functions here therefore compute a float32 result and round it to bfloat16. On other platforms, and
for float32 matrices, they compute the plain product.
"""

import functools
import logging
import math
import os
from collections.abc import Callable
from typing import Any, Literal, cast, get_args

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from bertzoo.core.errors import ConfigError
from bertzoo.core.machine import processor

_LOG = logging.getLogger(__name__)

RESULTS_VARIABLE = "BERTZOO_BFLOAT16_RESULTS"
FAST_EXTENSIONS = ("amx_bf16", "avx512_bf16")
Results = Literal["float32", "bfloat16"]


def cpu_results() -> Results:
    """Return the dtype in which this machine's CPU computes a bfloat16 product, before rounding it to bfloat16.

    The dtype is "float32" if the processor has one of FAST_EXTENSIONS and JAX has one device, else "bfloat16". With
    several devices, XLA's partitioner would gather whole arrays to make them row-major, as float32 results require.

    The environment variable RESULTS_VARIABLE overrides the choice. Raises ConfigError if its value is neither.
    """
    value = os.environ.get(RESULTS_VARIABLE)
    if not value:
        return "float32" if _fast_extensions() and jax.device_count() == 1 else "bfloat16"
    if value not in get_args(Results):
        raise ConfigError(
            f"{RESULTS_VARIABLE} = {value!r} in the environment is not valid. Use float32 or bfloat16, or unset the "
            "variable."
        )
    return cast(Results, value)


def log_cpu_results() -> None:
    """Log the dtype of bfloat16 products on this machine's CPU, or a warning that they are slow."""
    results = cpu_results()
    if os.environ.get(RESULTS_VARIABLE):
        _LOG.info(f"bfloat16 products on this CPU have {results} results, because {RESULTS_VARIABLE}={results}")
    elif results == "float32":
        _LOG.info(f"bfloat16 products on this CPU, which has {' and '.join(_fast_extensions())}, have float32 results")
    elif _fast_extensions():
        _LOG.warning(
            f"bfloat16 is slower than float32 on {jax.device_count()} CPU devices. Use --compute.dtype=float32, or one "
            "device."
        )
    else:
        _LOG.warning(
            f"this processor has none of {' and '.join(FAST_EXTENSIONS)}, so bfloat16 is slower than float32. Use "
            "--compute.dtype=float32."
        )


def _fast_extensions() -> list[str]:
    return [name for name in FAST_EXTENSIONS if name in processor().extensions]


def is_fast(x: jax.Array) -> bool:
    """Return whether this machine's CPU computes products of x by bfloat16 instructions, with float32 results."""
    return x.dtype == jnp.bfloat16 and cpu_results() == "float32"


def _by_platform(fast: bool, on_cpu: Callable[..., Any], plain: Callable[..., Any], *operands: jax.Array) -> Any:
    return jax.lax.platform_dependent(*operands, cpu=on_cpu, default=plain) if fast else plain(*operands)


def _row_major(x: jax.Array) -> jax.Array:
    """Return x, copied to row-major order if it is transposed; XLA does not merge the copy into a product of x."""
    return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))


def product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Return x (..., I) @ kernel (*I, *O), shape (..., O), with a gradient that is fast on CPUs.

    The axes *I and *O are flattened to I and O. The kernel is rounded to the dtype of x, and the result has this
    dtype. The kernel's gradient has the dtype of the kernel.
    """
    return _product(is_fast(x), kernel.shape, kernel.dtype.name, x, kernel)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _product(fast: bool, shape: tuple[int, ...], dtype: str, x: jax.Array, kernel: jax.Array) -> jax.Array:
    return _product_forward(fast, shape, dtype, x, kernel)[0]


def _product_forward(
    fast: bool, shape: tuple[int, ...], dtype: str, x: jax.Array, kernel: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    matrix_IO = kernel.astype(x.dtype).reshape(x.shape[-1], -1)
    return _by_platform(fast, _fast_rows, jnp.matmul, x, matrix_IO), (x, matrix_IO)


def _product_backward(
    fast: bool, shape: tuple[int, ...], dtype: str, residuals: tuple[jax.Array, jax.Array], dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, matrix_IO = residuals

    def over_rows(x: jax.Array, dy: jax.Array) -> jax.Array:
        """Return the kernel's gradient as one product of two matrices."""
        x_NI, dy_NO = (array.reshape(-1, array.shape[-1]) for array in (x, dy))
        if not fast:
            return over_axes(x_NI, dy_NO)
        product_IO = jnp.matmul(_row_major(x_NI.T), dy_NO, preferred_element_type=jnp.float32)
        return product_IO.reshape(shape).astype(dtype)

    def over_axes(x: jax.Array, dy: jax.Array) -> jax.Array:
        """Return the kernel's gradient, the sum of xᵀ·dy over all leading axes."""
        axes = tuple(range(x.ndim - 1))
        return jax.lax.dot_general(x, dy, ((axes, axes), ((), ()))).reshape(shape).astype(dtype)

    # With more than two axes, XLA's CPU backend copies and transposes both operands, then multiplies slower. With two,
    # libtpu needs a fifth more memory beside the parameters if the mesh splits parameters along its tensor axis.
    dkernel = jax.lax.platform_dependent(x, dy, cpu=over_rows, default=over_axes)
    by_columns = functools.partial(_fast_rows, axis=1)
    return _by_platform(fast, by_columns, lambda dy, matrix_IO: dy @ matrix_IO.T, dy, matrix_IO), dkernel


_product.defvjp(_product_forward, _product_backward)


def _fast_rows(x: jax.Array, matrix: jax.Array, axis: int = 0) -> jax.Array:
    """Return x (..., I) times a matrix (I, O) or, for axis 1, (..., O) times its transpose, in bfloat16."""
    rows = x.reshape(-1, x.shape[-1])
    result = jax.lax.dot_general(rows, matrix, (((1,), (axis,)), ((), ())), preferred_element_type=jnp.float32)
    return result.astype(x.dtype).reshape(*x.shape[:-1], -1)


def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """Return x (..., *O) + bias (*O), rounded to the dtype of x, with a gradient that is fast on CPUs."""
    return _add_bias(is_fast(x), bias.dtype.name, x, bias)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _add_bias(fast: bool, dtype: str, x: jax.Array, bias: jax.Array) -> jax.Array:
    return x + bias.astype(x.dtype)


def _add_bias_backward(fast: bool, dtype: str, bias: jax.Array, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    def summed(dy: jax.Array) -> jax.Array:
        return jnp.sum(dy, tuple(range(dy.ndim - bias.ndim))).astype(dtype)

    def multiplied(dy: jax.Array) -> jax.Array:
        """Return the bias's gradient as a product with ones, because XLA's CPU backend sums columns of bfloat16 slowly.

        The ones are eight equal rows, because XLA multiplies a single row slowly too.
        """
        dy_NO = dy.reshape(-1, bias.size)
        ones_8N = jnp.ones((8, len(dy_NO)), dy.dtype)
        sums_8O = jnp.matmul(ones_8N, dy_NO, preferred_element_type=jnp.float32)
        return sums_8O[0].reshape(bias.shape).astype(dtype)

    return dy, _by_platform(fast, multiplied, summed, dy)


_add_bias.defvjp(lambda fast, dtype, x, bias: (_add_bias(fast, dtype, x, bias), bias), _add_bias_backward)


def batched_product(axes: str, left: jax.Array, right: jax.Array, result: Any = None) -> jax.Array:
    """Return `jnp.einsum(axes, left, right)`, with gradients that are fast on CPUs.

    axes: a letter for each axis of the arrays and of the result, such as "blhk,bmhk->bhlm".
    result: dtype of the result, by default the dtype of `left`.

    `right` is rounded to the dtype of `left`. In bfloat16, both gradients are products of bfloat16 matrices. If the
    result is float32, its gradient is first rounded to bfloat16.
    """
    static = axes, jnp.dtype(result or left.dtype).name
    if left.dtype == jnp.bfloat16:
        return _batched(is_fast(left), *static, left, right)
    return _plain_einsum(*static, left, right)


def _plain_einsum(axes: str, result: str, left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.einsum(axes, left, right.astype(left.dtype), preferred_element_type=jnp.dtype(result))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _batched(fast: bool, axes: str, result: str, left: jax.Array, right: jax.Array) -> jax.Array:
    return _batched_forward(fast, axes, result, left, right)[0]


def _batched_forward(
    fast: bool, axes: str, result: str, left: jax.Array, right: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    on_cpu, plain = (functools.partial(form, axes, result) for form in (_fast_einsum, _plain_einsum))
    return _by_platform(fast, on_cpu, plain, left, right), (left, right)


def _batched_backward(
    fast: bool, axes: str, result: str, residuals: tuple[jax.Array, jax.Array], dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    left_axes, right_axes, result_axes = _split(axes)

    def on_cpu(left: jax.Array, right: jax.Array, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
        return (
            _fast_einsum(f"{result_axes},{right_axes}->{left_axes}", left.dtype.name, dy, right),
            _fast_einsum(f"{result_axes},{left_axes}->{right_axes}", right.dtype.name, dy, left),
        )

    def plain(left: jax.Array, right: jax.Array, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.vjp(functools.partial(_plain_einsum, axes, left.dtype.name), left, right)[1](dy)

    return _by_platform(fast, on_cpu, plain, *residuals, dy.astype(residuals[0].dtype))


_batched.defvjp(_batched_forward, _batched_backward)


def _split(axes: str) -> list[str]:
    return axes.replace("->", ",").split(",")


def _sorted_axes(left_axes: str, right_axes: str, result_axes: str) -> tuple[str, str, str, str]:
    """Return the axes of a batched product: those of the batch, the rows and the columns, and those summed over."""
    batch = "".join(axis for axis in result_axes if axis in left_axes and axis in right_axes)
    rows, columns = (
        "".join(axis for axis in axes if axis in result_axes and axis not in batch) for axes in (left_axes, right_axes)
    )
    return batch, rows, columns, "".join(axis for axis in left_axes if axis not in result_axes)


def _fast_einsum(axes: str, result: str, left: jax.Array, right: jax.Array) -> jax.Array:
    """Return an einsum, computed by bfloat16 instructions as one batched product and rounded to the dtype `result`."""
    left, right = left.astype(jnp.bfloat16), right.astype(jnp.bfloat16)
    left_axes, right_axes, result_axes = _split(axes)
    sides = (left_axes, right_axes, result_axes, left, right), (right_axes, left_axes, result_axes, right, left)
    # XLA folds the transpose of a float32 result into the product, which is then in no form that it can compute.
    left_axes, right_axes, _, left, right = min(sides, key=lambda side: _moved(*side, may_swap=result == "bfloat16"))
    batch, rows, columns, summed = _sorted_axes(left_axes, right_axes, result_axes)
    inner = f"{summed}{columns}" if right_axes.endswith(columns) else f"{columns}{summed}"
    product = jnp.einsum(
        f"{batch}{rows}{summed},{batch}{inner}->{batch}{rows}{columns}",
        _row_major(jnp.einsum(f"{left_axes}->{batch}{rows}{summed}", left)),
        _row_major(jnp.einsum(f"{right_axes}->{batch}{inner}", right)),
        preferred_element_type=jnp.float32,
    )
    return jnp.einsum(f"{batch}{rows}{columns}->{result_axes}", product.astype(jnp.dtype(result)))


def _moved(
    left_axes: str, right_axes: str, result_axes: str, left: jax.Array, right: jax.Array, may_swap: bool
) -> float:
    """Return how many elements a product's transposes move; infinity if the result must be transposed, but may not."""
    batch, rows, columns, summed = _sorted_axes(left_axes, right_axes, result_axes)
    sizes = dict(zip(left_axes + right_axes, left.shape + right.shape, strict=True))
    moved = 0 if left_axes.endswith(summed) else left.size
    if "".join(axis for axis in result_axes if axis not in batch) == rows + columns:
        return moved
    return moved + math.prod(sizes[axis] for axis in result_axes) if may_swap else math.inf
