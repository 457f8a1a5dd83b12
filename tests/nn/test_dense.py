"""Dense maps against numpy, and as products of matrices alone."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertzoo.nn import Dense, DensePair, Trigram

INIT = jax.nn.initializers.normal(1.0)
MODULES = {
    "dense": Dense((5,), ("embed", "model"), INIT, jnp.float32),
    "to heads": Dense((2, 3), ("model", "heads", "keys"), INIT, jnp.float32),
    "from heads": Dense((5,), ("heads", "values", "model"), INIT, jnp.float32),
    "pair": DensePair(5, ("model", "hidden"), INIT, jnp.float32),
    "trigram": Trigram(5, INIT, jnp.float32, mask_padding=False),
}
RANDOM = np.random.default_rng(0)
INPUTS = {
    "dense": (RANDOM.normal(size=(2, 7, 6)),),
    "to heads": (RANDOM.normal(size=(2, 7, 6)),),
    "from heads": (RANDOM.normal(size=(2, 7, 2, 3)),),
    "pair": (RANDOM.normal(size=(2, 4, 1, 6)), RANDOM.normal(size=(2, 1, 7, 6))),
    "trigram": (RANDOM.normal(size=(2, 7, 6)), np.ones((2, 7), bool)),
}
EXPECTED = {"dense": "bli,io->blo", "to heads": "bli,iho->blho", "from heads": "blhi,hio->blo"}


def inputs(name: str) -> tuple[Any, ...]:
    return tuple(jnp.asarray(each, bool if each.dtype == bool else jnp.float32) for each in INPUTS[name])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_dense_map_and_its_gradients_equal_the_einsums_of_its_axes(name: str) -> None:
    (x,) = inputs(name)
    made, params = MODULES[name].init_with_output(jax.random.key(0), x)
    kernel, bias = (np.asarray(params["params"][leaf].value, np.float64) for leaf in ("kernel", "bias"))
    exact, weights = np.asarray(x, np.float64), RANDOM.normal(size=made.shape)
    np.testing.assert_allclose(made, np.einsum(EXPECTED[name], exact, kernel) + bias, atol=1e-5)
    gradient = jax.grad(lambda params, x: (MODULES[name].apply(params, x) * weights).sum(), argnums=(0, 1))
    by_params, by_x = gradient(params, x)
    x_axes, kernel_axes, made_axes = re.findall(r"\w+", EXPECTED[name])
    by_kernel = np.einsum(f"{x_axes},{made_axes}->{kernel_axes}", exact, weights)
    np.testing.assert_allclose(by_params["params"]["kernel"].value, by_kernel, atol=1e-5)
    np.testing.assert_allclose(by_params["params"]["bias"].value, weights.sum((0, 1)), atol=1e-5)
    np.testing.assert_allclose(by_x, np.einsum(f"{made_axes},{kernel_axes}->{x_axes}", weights, kernel), atol=1e-5)


@pytest.mark.parametrize("name", MODULES)
def test_a_product_sums_over_one_axis_on_a_cpu(name: str) -> None:
    # Over two, XLA's CPU backend copies both operands first; of two, a TPU keeps more under a tensor axis.
    arrays = inputs(name)
    params = MODULES[name].init(jax.random.key(0), *arrays)
    gradient = jax.grad(lambda params, first: MODULES[name].apply(params, first, *arrays[1:]).sum(), argnums=(0, 1))
    traced = jax.jit(gradient).trace(params, arrays[0])
    programs = {one: traced.lower(lowering_platforms=(one,)).as_text() for one in ("cpu", "tpu")}
    axes = r"dot_general .*contracting_dims = \[([\d, ]+)\]"
    summed = {platform: re.findall(axes, text) for platform, text in programs.items()}
    assert len(summed["cpu"]) == len(summed["tpu"]) > 1
    assert not any("," in axes for axes in summed["cpu"])
    assert any("," in axes for axes in summed["tpu"])
