"""Parameters: shapes without random draws, and the error for an existing parameter of another shape."""

import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import mentioning
from zoo import CASES

from bertzoo.models import Compute
from bertzoo.nn import Dense
from bertzoo.nn.parameter import init_shapes, parameter

DENSE = Dense(features=(3,), axes=("model", "pooled"), kernel_init=nn.initializers.ones, dtype=jnp.dtype("float32"))


@pytest.mark.parametrize("name", ["mobilebert", "convbert-span", "squeezebert", "albert"])
def test_shapes_equal_a_real_init(name: str) -> None:
    model, head = CASES[name]
    module, ids = head.build(model, Compute()), jnp.ones((1, 4), jnp.int32)
    inputs = (ids, ids, ids, *([ids[:, :1]] if head.kind == "masked" else []))
    found = init_shapes(module.init, jax.random.key(0), *inputs)
    expected = jax.eval_shape(lambda key: module.init(key, *inputs), jax.random.key(0))
    assert jax.tree.structure(found) == jax.tree.structure(expected)  # names of axes too
    assert jax.tree.leaves(found) == jax.tree.leaves(expected)


def test_asking_for_shapes_leaves_no_trace_in_a_later_init() -> None:
    x = jnp.ones((2, 5))
    init_shapes(DENSE.init, jax.random.key(0), x)
    kernel = nn.unbox(jax.jit(DENSE.init)(jax.random.key(0), x))["params"]["kernel"]
    np.testing.assert_array_equal(kernel, np.ones((5, 3)))


def test_a_parameter_of_another_shape_is_an_error() -> None:
    params = {"kernel": jnp.ones((5, 2)), "bias": jnp.ones(2)}
    with pytest.raises(ValueError, match=mentioning("kernel", "(5, 2)", "(5, 3)")):
        DENSE.apply({"params": params}, jnp.ones((2, 5)))


def test_one_name_declared_twice_is_an_error() -> None:
    class Twice(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return sum(parameter(self, "kernel", nn.initializers.ones, ("model",), (3,)) for _ in range(2)) + x  # type: ignore

    with pytest.raises(flax.errors.NameInUseError):
        Twice().init(jax.random.key(0), jnp.ones(3))
