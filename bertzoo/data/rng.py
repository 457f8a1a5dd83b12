"""Counter-based randomness: every draw is a pure function of its keys, so that any host can compute it.

The mixing function is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
Generators", OOPSLA 2014) with the constants of Stafford's variant 13.
"""

import numpy as np

_BITS = (1 << 64) - 1
_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def fold(*keys: int) -> int:
    """Return a 64-bit hash of a sequence of non-negative integers."""
    state = 0
    for key in keys:
        state = _mix((state ^ (key & _BITS)) + _GAMMA & _BITS)
    return state


def fold_arrays(*keys: int | np.ndarray) -> np.ndarray:
    """Return `fold` of the elements of integer arrays, broadcast against each other, as uint64."""
    state: np.ndarray = np.zeros(1, np.uint64)
    for key in keys:
        key = np.uint64(key & _BITS) if isinstance(key, int) else key.astype(np.uint64)
        z = (state ^ key) + np.uint64(_GAMMA)
        z ^= z >> np.uint64(30)
        z *= np.uint64(_MIX_1)
        z ^= z >> np.uint64(27)
        z *= np.uint64(_MIX_2)
        z ^= z >> np.uint64(31)
        state = z
    return state


def uniform(bits: np.ndarray) -> np.ndarray:
    """Return floats in [0, 1) with 53 random bits, from uint64 hashes."""
    return (bits >> np.uint64(11)) * 2.0**-53


def below(bits: np.ndarray, bound: int) -> np.ndarray:
    """Return integers in [0, bound) from uint64 hashes; bound < 2**31 (bias below bound / 2**32)."""
    return ((bits >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32)).astype(np.int64)


class SplitMix:
    """The SplitMix64 generator, for code that does not know its number of draws beforehand."""

    __slots__ = ("_state",)

    def __init__(self, seed: int):
        self._state = seed

    def bits(self) -> int:
        """Return 64 random bits as an integer."""
        self._state = state = self._state + _GAMMA & _BITS
        return _mix(state)

    def random(self) -> float:
        """Return a float in [0, 1) with 53 random bits."""
        return (self.bits() >> 11) * 2.0**-53

    def integer(self, low: int, high: int) -> int:
        """Return an integer in [low, high], both included."""
        return low + (self.bits() * (high - low + 1) >> 64)

    def heads(self, tosses: int) -> int:
        """Return the number of heads in `tosses` tosses of a fair coin."""
        count = 0
        while tosses > 64:
            count += self.bits().bit_count()
            tosses -= 64
        return count + (self.bits() >> 64 - tosses).bit_count() if tosses else count


def _mix(z: int) -> int:
    z = (z ^ z >> 30) * _MIX_1 & _BITS
    z = (z ^ z >> 27) * _MIX_2 & _BITS
    return z ^ z >> 31
