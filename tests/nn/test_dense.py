"""Dense maps against numpy."""

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
def test_a_dense_map_is_the_einsum_of_its_axes(name: str) -> None:
    arrays = inputs(name)
    made, params = MODULES[name].init_with_output(jax.random.key(0), *arrays)
    kernel, bias = (np.asarray(params["params"][leaf].value, np.float64) for leaf in ("kernel", "bias"))
    expected = np.einsum(EXPECTED[name], np.asarray(arrays[0], np.float64), kernel) + bias
    np.testing.assert_allclose(made, expected, atol=1e-5)
