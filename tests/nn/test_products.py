"""Products in bfloat16 against numpy, and the form in which a CPU computes them."""

import re
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertzoo.core.errors import ConfigError
from bertzoo.core.machine import Processor
from bertzoo.models import Compute
from bertzoo.nn import products

SHAPES = {
    "blhk,bmhk->bhlm": ((2, 5, 3, 4), (2, 7, 3, 4)),
    "bhlm,bmhj->blhj": ((2, 3, 5, 7), (2, 7, 3, 4)),
    "gni,gio->gno": ((2, 5, 3), (2, 3, 4)),
    "bpe,ve->bpv": ((2, 5, 4), (9, 4)),
    "bli,io->blo": ((2, 5, 6), (6, 8)),
}
DOT = re.compile(r"dot_general .*: \(tensor<[\dx]*x(\w+)>, tensor<[\dx]*x(\w+)>\) -> tensor<[\dx]*x(\w+)>")
HALF = 2.0**-8  # relative error of rounding to bfloat16


def multiply(axes: str, left: jax.Array, right: jax.Array) -> jax.Array:
    return products.product(left, right) if axes == "bli,io->blo" else products.batched_product(axes, left, right)


def rounded(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(jnp.asarray(random.normal(size=shape), jnp.bfloat16).astype(jnp.float32))


@pytest.mark.parametrize("results", get_args(products.Results))
@pytest.mark.parametrize("axes", SHAPES)
def test_a_bfloat16_product_and_its_gradients_are_rounded_once(axes: str, results: str, monkeypatch):
    monkeypatch.setenv(products.RESULTS_VARIABLE, results)
    random = np.random.default_rng(0)
    left, right = (rounded(random, shape) for shape in SHAPES[axes])
    left_axes, right_axes, result_axes = re.findall(r"\w+", axes)
    expected = np.einsum(axes, left, right)
    change = rounded(random, expected.shape)
    half = jnp.asarray(left, jnp.bfloat16)

    @jax.jit  # XLA compiles no form that its CPU backend cannot compute
    def both(x: jax.Array, y: jax.Array, change: jax.Array) -> tuple[jax.Array, ...]:
        result, gradient = jax.vjp(lambda x, y: multiply(axes, x, y), x, y)
        return result, *gradient(change)

    result, by_left, by_right = both(half, jnp.asarray(right), jnp.asarray(change, jnp.bfloat16))
    assert (result.dtype, by_left.dtype, by_right.dtype) == (jnp.bfloat16, jnp.bfloat16, jnp.float32)
    for ours, exact in (
        (result, expected),
        (by_left, np.einsum(f"{result_axes},{right_axes}->{left_axes}", change, right)),
        (by_right, np.einsum(f"{result_axes},{left_axes}->{right_axes}", change, left)),
    ):
        np.testing.assert_allclose(np.asarray(ours, np.float32), exact, rtol=HALF, atol=HALF * np.abs(exact).max() / 8)


@pytest.mark.parametrize("axes", SHAPES)
def test_float32_results_are_products_of_bfloat16_matrices(axes: str, monkeypatch):
    left, right = (jnp.ones(shape, jnp.bfloat16) for shape in SHAPES[axes])

    def loss(x: jax.Array, y: jax.Array) -> jax.Array:
        return multiply(axes, x, y).astype(jnp.float32).sum()

    formats = {}
    for results in get_args(products.Results):
        monkeypatch.setenv(products.RESULTS_VARIABLE, results)
        traced = jax.jit(jax.grad(lambda x, y: loss(x, y), argnums=(0, 1))).trace(left, right)
        for platform in ("cpu", "tpu"):
            text = traced.lower(lowering_platforms=(platform,)).as_text()
            formats[results, platform] = DOT.findall(text)
    assert formats["float32", "cpu"] == [("bf16", "bf16", "f32")] * 2
    assert formats["float32", "tpu"] == formats["bfloat16", "cpu"] == formats["bfloat16", "tpu"] == [("bf16",) * 3] * 2


@pytest.mark.parametrize("results", get_args(products.Results))
def test_a_bias_has_the_sum_over_rows_as_its_gradient(results: str, monkeypatch):
    """A CPU multiplies with ones where it is fast, and sums elsewhere; the sum is rounded at most once."""
    monkeypatch.setenv(products.RESULTS_VARIABLE, results)
    random = np.random.default_rng(0)
    x, bias, change = (rounded(random, shape) for shape in ((3, 50, 2, 4), (2, 4), (3, 50, 2, 4)))

    @jax.jit
    def both(x: jax.Array, bias: jax.Array, change: jax.Array) -> tuple[jax.Array, ...]:
        result, gradient = jax.vjp(products.add_bias, x, bias)
        return result, *gradient(change)

    arrays = jnp.asarray(x, jnp.bfloat16), jnp.asarray(bias), jnp.asarray(change, jnp.bfloat16)
    result, by_x, by_bias = both(*arrays)
    assert (result.dtype, by_x.dtype, by_bias.dtype) == (jnp.bfloat16, jnp.bfloat16, jnp.float32)
    np.testing.assert_allclose(np.asarray(result, np.float32), x + bias, rtol=HALF, atol=HALF)
    np.testing.assert_array_equal(np.asarray(by_x, np.float32), change)
    np.testing.assert_allclose(by_bias, change.sum((0, 1)), rtol=1e-5 if results == "float32" else HALF)
    programs = {one: both.trace(*arrays).lower(lowering_platforms=(one,)).as_text() for one in ("cpu", "tpu")}
    assert {one: len(DOT.findall(text)) for one, text in programs.items()} == {"cpu": results == "float32", "tpu": 0}


def test_a_float32_result_has_gradients_of_bfloat16_matrices():
    left, right = (jnp.ones(shape, jnp.bfloat16) for shape in SHAPES["blhk,bmhk->bhlm"])

    def loss(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.square(products.batched_product("blhk,bmhk->bhlm", x, y, jnp.float32)).sum()

    traced = jax.jit(jax.grad(loss, argnums=(0, 1))).trace(left, right)
    dots = DOT.findall(traced.lower(lowering_platforms=("tpu",)).as_text())
    assert sorted(dots) == [("bf16", "bf16", "bf16")] * 2 + [("bf16", "bf16", "f32")]


@pytest.mark.parametrize(
    ("extensions", "devices", "variable", "expected"),
    [
        ({"avx2", "avx512_bf16"}, 1, "", "float32"),
        ({"amx_bf16"}, 1, "", "float32"),
        ({"amx_bf16"}, 2, "", "bfloat16"),
        ({"avx2", "bf16"}, 1, "", "bfloat16"),
        (set(), 2, "float32", "float32"),
        ({"amx_bf16"}, 1, "bfloat16", "bfloat16"),
    ],
)
def test_the_processor_or_the_variable_chooses_the_form(extensions, devices, variable, expected, monkeypatch, caplog):
    caplog.set_level("INFO", "bertzoo")
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    monkeypatch.setattr(products, "processor", lambda: Processor("any", frozenset(extensions)))
    monkeypatch.setenv(products.RESULTS_VARIABLE, variable)
    for dtype in ("bfloat16", "float32"):
        Compute(dtype=dtype).log_format()
    assert products.cpu_results() == expected
    assert [record.levelname == "WARNING" for record in caplog.records] == [expected == "bfloat16" and not variable]


def test_an_unknown_form_raises(monkeypatch):
    monkeypatch.setenv(products.RESULTS_VARIABLE, "float16")
    with pytest.raises(ConfigError, match=products.RESULTS_VARIABLE):
        products.cpu_results()
