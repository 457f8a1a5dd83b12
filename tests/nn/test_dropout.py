"""The hash behind dropout as a random generator, and the layer against its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bertzoo.nn import Dropout
from bertzoo.nn.random import random_bits


def bits(seed, shape):
    return np.asarray(random_bits(jax.random.key(seed), shape))


def test_bytes_are_uniform():
    counts = np.bincount(bits(0, (64, 4096)).view(np.uint8).ravel(), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("seed", [0, 1])
def test_neighbours_rows_and_keys_are_uncorrelated(seed):
    shape = (64, 4096)
    here = bits(seed, shape) / 2**32 - 0.5
    pairs = {
        "next in the row": (here[:, :-1], here[:, 1:]),
        "next row": (here[:-1], here[1:]),
        "head apart": (here[:, :-64], here[:, 64:]),
        "next key": (here, bits(seed + 1, shape) / 2**32 - 0.5),
        "a step later": (
            here,
            np.asarray(random_bits(jax.random.fold_in(jax.random.key(seed), 1), shape)) / 2**32 - 0.5,
        ),
    }
    for name, (a, b) in pairs.items():
        correlation = np.mean(a * b) * 12
        assert abs(correlation) < 4.5 / np.sqrt(a.size), name


def test_a_row_does_not_depend_on_the_other_rows():
    np.testing.assert_array_equal(bits(5, (8, 3, 7))[:2], bits(5, (2, 3, 7)))


def test_dropout_drops_its_share_and_keeps_the_mean():
    x = jnp.ones((200, 1000))
    y = Dropout(0.1).apply({}, x, True, rngs={"dropout": jax.random.key(0)})
    assert abs(float(jnp.mean(y == 0)) - 0.1) < 4 * (0.1 * 0.9 / x.size) ** 0.5
    np.testing.assert_allclose(np.unique(y), [0, 1 / 0.9], rtol=1e-6)
    np.testing.assert_array_equal(Dropout(0.1).apply({}, x, False), x)
    np.testing.assert_array_equal(Dropout(0.0).apply({}, x, True), x)
