"""The attention kernel for TPUs, interpreted on the CPU, beside the plain path: results, gradients, meshes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import assert_close

from bertzoo.nn import Dropout
from bertzoo.nn.attention import attend
from bertzoo.nn.fused_attention import heads_per_block, long_attention, rows_per_block
from bertzoo.nn.modern import attend_near
from bertzoo.nn.platform import Platform, traced_for
from bertzoo.nn.products import RESULTS_VARIABLE
from bertzoo.train import sharding

# rows, queries, keys, heads, key size, value size
PLAIN = 2, 16, 16, 4, 32, 32
ODD = 3, 7, 13, 3, 5, 9
SPLIT = 8, 16, 16, 4, 64, 32


def inputs(shape, dtype):
    rows, queries, keys, heads, key_size, value_size = shape
    random = np.random.default_rng(0)
    sizes = ((queries, key_size), (keys, key_size), (keys, value_size), (queries, value_size))
    arrays = [jnp.asarray(random.normal(size=(rows, length, heads, size)), dtype) for length, size in sizes]
    mask_BM = jnp.asarray(np.arange(keys) < random.integers(1, keys + 1, size=(rows, 1)), jnp.int32)
    return arrays, mask_BM


def function(kernel, mask_BM, rate, reach=None):
    """The result of query, key and value."""

    def result(query, key, value):
        def one(dropout):
            with traced_for(Platform("tpu", kernel)):
                more = () if reach is None else (reach,)
                return (attend_near if more else attend)(query, key, value, mask_BM, dropout, True, *more)[0]

        return Dropout(rate).apply({}, rngs={"dropout": jax.random.key(3)}, method=one)

    return result


def assert_equal(fused, plain, arrays, tolerance):
    """Results and gradients agree to `tolerance` of each array's largest number."""
    *given, change = arrays
    both = []
    for result in (fused, plain):
        out, pull = jax.vjp(jax.jit(result), *given)
        both.append((out, *pull(change)))
    for ours, theirs in zip(*both, strict=True):
        assert_close(ours, theirs, "result or gradient", tolerance=tolerance)


@pytest.mark.parametrize(
    ("shape", "sizes", "dtype", "rate"),
    [
        (PLAIN, (1, 1, 1), "float32", 0.0),
        (ODD, (1, 1, 1), "float32", 0.1),
        (ODD, (1, 1, 1), "bfloat16", 0.1),
        (SPLIT, (2, 2, 2), "float32", 0.1),  # each device drops its own rows' and heads' elements
        (PLAIN, (8, 1, 1), "float32", 0.1),  # the plain path, as two rows do not divide over eight devices
    ],
    ids=str,
)
def test_the_kernel_agrees_with_the_plain_path(shape, sizes, dtype, rate, monkeypatch):
    monkeypatch.setenv(RESULTS_VARIABLE, "bfloat16")  # the plain products of TPUs, on any CPU
    config = sharding.Mesh(**dict(zip(("data", "fsdp", "tensor"), sizes, strict=True)))
    mesh = sharding.make_mesh(config, jax.devices()[: np.prod(sizes)])
    kernel = sharding.attention_kernel(mesh, interpret=True)
    arrays, mask_BM = inputs(shape, dtype)
    program = str(jax.make_jaxpr(function(kernel, mask_BM, rate))(*arrays[:3]))
    assert ("pallas_call" in program) == (sizes != (8, 1, 1))
    tolerance = {"float32": 1e-5, "bfloat16": 2e-2}[dtype]
    assert_equal(function(kernel, mask_BM, rate), function(None, mask_BM, rate), arrays, tolerance)


def test_blocks_that_do_not_fit_take_the_plain_path():
    """schuBERT's 12 heads with values of 46 numbers, whose lanes only a block of all heads fills."""
    kernel = sharding.attention_kernel(sharding.make_mesh(sharding.Mesh(), jax.devices()[:1]), interpret=True)
    for value_size, heads, fits in ((64, 12, True), (46, 12, False), (46, 2, True)):
        query, value = (jax.ShapeDtypeStruct((2, 512, heads, size), jnp.bfloat16) for size in (64, value_size))
        mask_BM = jnp.ones((2, 512), jnp.int32)
        program = str(jax.make_jaxpr(function(kernel, mask_BM, 0.0))(query, query, value))
        assert ("pallas_call" in program) == fits


@pytest.mark.slow
@pytest.mark.parametrize(("queries", "keys", "reach"), [(300, 300, 64), (150, 700, None)])
def test_the_kernel_of_long_rows_agrees_with_the_plain_path(queries, keys, reach):
    arrays, _ = inputs((2, queries, keys, 2, 8, 8), "float32")
    mask_BM = jnp.asarray(np.arange(keys) < [[keys], [keys - 40]], jnp.int32)

    def fused(query, key, value):
        return long_attention(query, key, value, mask_BM, reach, interpret=True)

    assert_equal(fused, function(None, mask_BM, 0.0, reach), arrays, 1e-5)


@pytest.mark.parametrize(
    ("keys", "reach", "dtype", "rate", "fits"),
    [
        (1024, None, "bfloat16", 0.0, True),
        (256, 64, "bfloat16", 0.0, True),
        (1024, None, "bfloat16", 0.1, False),
        (256, 64, "float32", 0.0, False),
    ],
)
def test_the_kernel_of_long_rows_takes_bfloat16_without_dropout(keys, reach, dtype, rate, fits):
    mesh = sharding.make_mesh(sharding.Mesh(data=2, tensor=2), jax.devices()[:4])
    kernel = sharding.attention_kernel(mesh, interpret=True)
    array, mask_BM = jax.ShapeDtypeStruct((2, keys, 2, 64), dtype), jnp.ones((2, keys), jnp.int32)

    program = str(jax.make_jaxpr(function(kernel, mask_BM, rate, reach))(array, array, array))
    assert ("pallas_call" in program) == fits


def test_a_mesh_without_tpus_has_no_kernel():
    assert sharding.attention_kernel(sharding.make_mesh(sharding.Mesh())) is None


def test_blocks_fill_lanes_and_divide_the_rows():
    assert heads_per_block(12, 64, 64) == 2 and heads_per_block(4, 32, 32) == 4
    assert heads_per_block(12, 128, 64) == 2 and heads_per_block(3, 5, 9) == 3
    assert rows_per_block(32, 128) == 4 and rows_per_block(32, 512) == 1
    assert rows_per_block(7, 128) == 1 and rows_per_block(6, 128) == 3 and rows_per_block(2, 1024) == 1
