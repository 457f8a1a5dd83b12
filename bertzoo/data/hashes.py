"""What the hash of a document's text decides: whether it is held out, whether a weight takes it, and what equals it.

Each decision reads other bytes of the hash, so that they do not depend on one another.
"""

import hashlib

import numpy as np


def is_heldout(document: str, share: float) -> bool:
    """Whether a document belongs to the held-out part: decided by the hash of its text alone."""
    return _below(document, 0, share)


def is_chosen(document: str, share: float) -> bool:
    """Whether a document is in this share of a source; whatever is in a share is in every larger one."""
    return _below(document, 8, share)


def keys(documents: tuple[str, ...]) -> np.ndarray:
    """(N,) uint64 that are equal where documents are.

    That two of n different documents share one has the probability n²/2⁶⁵: 0.4 % for the 365 million of C4.
    """
    digests = b"".join(_digest(document)[16:24] for document in documents)
    return np.frombuffer(digests, np.uint64)


def _below(document: str, start: int, share: float) -> bool:
    return int.from_bytes(_digest(document)[start : start + 8], "big") < share * 2.0**64


def _digest(document: str) -> bytes:
    return hashlib.sha256(document.encode()).digest()


class Seen:
    """The keys of all documents so far, 8 bytes each: sorted runs, each more than twice as long as the next."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def add(self, new: np.ndarray) -> np.ndarray:
        """(N,) whether each key was there before, among the new ones or the old; all of them are then."""
        repeated = np.ones(len(new), bool)
        repeated[np.unique(new, return_index=True)[1]] = False
        for run in self._runs:
            repeated |= run[np.minimum(np.searchsorted(run, new), len(run) - 1)] == new
        if not repeated.all():
            self._runs.append(np.sort(new[~repeated]))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            # In place, so that at most the run and its successor are there at once.
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort()
            self._runs.append(merged)
        return repeated
