"""Counter-based randomness against published values and the statistics it promises."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertzoo.data.rng import SplitMix, below, fold, fold_arrays, uniform


def test_splitmix_equals_the_published_sequence():
    # Rosetta Code, "Pseudo-random numbers/Splitmix64", seed 1234567.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    generator = SplitMix(1234567)
    assert [generator.bits() for _ in published] == published


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5))
def test_arrays_fold_as_integers_do(keys):
    assert int(fold_arrays(*(np.array([key], np.uint64) for key in keys))[0]) == fold(*keys)


def test_fold_depends_on_every_key_and_on_their_order():
    assert len({fold(1, 2, 3), fold(3, 2, 1), fold(1, 2), fold(1, 2, 4), fold(0, 1, 2, 3)}) == 5


def test_integers_cover_both_ends_evenly():
    generator = SplitMix(fold(5))
    counts = np.bincount([generator.integer(2, 6) for _ in range(20_000)], minlength=8)
    assert counts[:2].sum() == 0 and counts[7:].sum() == 0
    assert np.all(np.abs(counts[2:7] - 4000) < 5 * np.sqrt(4000 * 0.8))


def test_heads_are_binomial():
    for tosses in (0, 1, 63, 64, 65, 200):
        generator = SplitMix(fold(tosses))
        heads = np.array([generator.heads(tosses) for _ in range(4000)])
        assert heads.min() >= 0 and heads.max() <= tosses
        assert abs(heads.mean() - tosses / 2) <= 5 * np.sqrt(tosses / 4 / 4000)
        assert abs(heads.var() - tosses / 4) <= 0.1 * max(tosses / 4, 1e-9)


def test_uniform_and_below_fill_their_ranges():
    bits = fold_arrays(np.arange(100_000))
    values, integers = uniform(bits), below(bits, 7)
    assert values.min() >= 0 and values.max() < 1 and abs(values.mean() - 0.5) < 5 * np.sqrt(1 / 12 / 100_000)
    counts = np.bincount(integers, minlength=7)
    assert len(counts) == 7 and np.all(np.abs(counts - 100_000 / 7) < 5 * np.sqrt(100_000 / 7))
