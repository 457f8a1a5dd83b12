"""Sampling: its distribution, and the inputs that a draw depends on."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from bertzoo.nn import content_seeds, row_seeds, sample


def draws(logits_V, rows: int, slots: int, seed: int = 0) -> np.ndarray:
    logits_BPV = jnp.broadcast_to(jnp.asarray(logits_V, jnp.float32), (rows, slots, len(logits_V)))
    return np.asarray(jax.jit(sample)(logits_BPV, row_seeds(jax.random.key(seed), rows)))


def test_draws_follow_the_softmax():
    logits = np.random.default_rng(0).normal(0, 2, 40)
    counts = np.bincount(draws(logits, 100, 200).ravel(), minlength=40)
    expected = np.exp(logits) / np.exp(logits).sum() * counts.sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-3


def test_rare_tokens_of_a_large_vocabulary_have_the_right_frequency():
    """One token has half of the probability, 30,000 share the rest: the noise must be fine where it is large."""
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
