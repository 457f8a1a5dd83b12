"""Sampling and dropout: their distributions, and the inputs that a draw depends on."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bertzoo.nn import Dropout, content_seeds, row_seeds, sample
from bertzoo.nn.flops import matmul_flops
from bertzoo.nn.random import random_bits


def draws(logits_V, rows: int, slots: int, seed: int = 0) -> np.ndarray:
    logits_BPV = jnp.broadcast_to(jnp.asarray(logits_V, jnp.float32), (rows, slots, len(logits_V)))
    return np.asarray(jax.jit(sample)(logits_BPV, row_seeds(jax.random.key(seed), rows)))


@pytest.mark.parametrize("entries", [40, 300])
def test_draws_follow_the_softmax(entries: int):
    logits = np.random.default_rng(0).normal(0, 1.5, entries)
    counts = np.bincount(draws(logits, 100, 400).ravel(), minlength=entries)
    expected = np.exp(logits) / np.exp(logits).sum() * counts.sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-3


@pytest.mark.parametrize("entries", [1, 128, 129, 255, 1000])
def test_a_certain_entry_is_drawn_wherever_it_is(entries: int):
    for certain, size in itertools.product({0, 127, 128, 255, entries - 1} & set(range(entries)), (-300.0, 300.0)):
        logits = np.full(entries, -np.inf)
        logits[certain] = size
        np.testing.assert_array_equal(draws(logits, 4, 50), certain)


def test_the_form_for_tpus_draws_the_same(monkeypatch: pytest.MonkeyPatch):
    logits_BPV = np.random.default_rng(0).normal(0, 2, (8, 50, 1000)).astype(np.float32)
    seeds_B = row_seeds(jax.random.key(0), 8)
    expected = np.asarray(jax.jit(sample)(logits_BPV, seeds_B))
    products = []
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda values, tpu, default: products.append(tpu(values)) or products[-1]
    )
    np.testing.assert_array_equal(sample(jnp.asarray(logits_BPV), seeds_B), expected)
    assert len(products) == 1


def test_drawing_counts_as_no_matrix_product():
    """FLOPs of a model are those of its layers; the product that draws on TPUs is not one of them."""
    shapes = jax.ShapeDtypeStruct((2, 3, 1000), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.uint32)
    assert matmul_flops(sample, *shapes) == 0


def test_rare_tokens_of_a_large_vocabulary_have_the_right_frequency():
    """One token has half of the probability, and 30,000 share the rest, so their running sums must be fine."""
    logits = np.zeros(30_001)
    logits[0] = np.log(30_000)
    drawn = draws(logits, 20, 25, seed=1)
    assert stats.binomtest(int((drawn == 0).sum()), drawn.size, 0.5).pvalue > 1e-3
    rare = drawn[drawn > 0]
    assert stats.kstest(rare / 30_001, "uniform").pvalue > 1e-3


def test_keys_rows_and_slots_are_independent():
    first, second = (draws(np.zeros(1000), 64, 64, seed).ravel() for seed in (0, 1))
    rows, slots = first.reshape(64, 64), first.reshape(64, 64).T
    for a, b in ((first, second), (rows[1:], rows[:-1]), (slots[1:], slots[:-1])):
        assert (np.asarray(a) == np.asarray(b)).mean() < 0.005


def test_a_rows_content_alone_seeds_it():
    ids = np.random.default_rng(0).integers(0, 99, (4, 10))
    mask = (np.arange(10) < np.array([[10], [7], [3], [10]])).astype(np.int32)
    seeds = np.asarray(content_seeds(ids, mask))
    assert len(set(seeds.tolist())) == 4
    junk = np.where(mask > 0, ids, 5)  # neither the ids under the padding nor its length matter
    wider = np.pad(junk, ((0, 0), (0, 3))), np.pad(mask, ((0, 0), (0, 3)))
    np.testing.assert_array_equal(content_seeds(*wider), seeds)
    np.testing.assert_array_equal(content_seeds(ids[::-1], mask[::-1]), seeds[::-1])
    swapped = ids.copy()
    swapped[:, [0, 1]] = swapped[:, [1, 0]]
    assert (np.asarray(content_seeds(swapped, mask)) != seeds).all()


def bits(seed, shape):
    return np.asarray(random_bits(jax.random.key(seed), shape))


def test_bytes_are_uniform():
    counts = np.bincount(bits(0, (64, 4096)).view(np.uint8).ravel(), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("seed", [0, 1])
def test_neighbours_rows_and_keys_are_uncorrelated(seed):
    shape, later = (64, 4096), jax.random.fold_in(jax.random.key(seed), 1)
    here = bits(seed, shape) / 2**32 - 0.5
    pairs = {
        "next in the row": (here[:, :-1], here[:, 1:]),
        "next row": (here[:-1], here[1:]),
        "head apart": (here[:, :-64], here[:, 64:]),
        "next key": (here, bits(seed + 1, shape) / 2**32 - 0.5),
        "a step later": (here, np.asarray(random_bits(later, shape)) / 2**32 - 0.5),
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
