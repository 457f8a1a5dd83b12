"""Hashes of documents, which decide whether a document is held out, skipped, or a copy of another document.

A mixture may read only a share of a source's documents. Each decision uses different bytes of the hash, so the
decisions are independent.
"""

import hashlib

import numpy as np


def is_heldout(document: str, share: float) -> bool:
    """Return whether a document is in the `share` of all documents that are held out."""
    return _is_below(document, 0, share)


def is_chosen(document: str, share: float) -> bool:
    """Return whether a document is in a fixed random `share` of its source; a larger share includes a smaller one."""
    return _is_below(document, 8, share)


def document_keys(documents: tuple[str, ...]) -> np.ndarray:
    """Return a uint64 key for each document, (N,); equal documents have equal keys.

    The probability that two of n different documents share a key is n²/2⁶⁵: 0.4 % for C4's 365 million documents.
    """
    return np.frombuffer(b"".join(_digest(document)[16:24] for document in documents), np.uint64)


def _is_below(document: str, start: int, share: float) -> bool:
    return int.from_bytes(_digest(document)[start : start + 8], "big") < share * 2.0**64


def _digest(document: str) -> bytes:
    return hashlib.sha256(document.encode()).digest()


class KeySet:
    """A set of uint64 document keys, which takes 8 bytes per key."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Add keys (N,), and return (N,) bool: True for a key that was in the set or occurs earlier in `keys`."""
        repeated = np.ones(len(keys), bool)
        repeated[np.unique(keys, return_index=True)[1]] = False
        for run in self._runs:
            repeated |= run[np.minimum(np.searchsorted(run, keys), len(run) - 1)] == keys
        if not repeated.all():
            self._runs.append(np.sort(keys[~repeated]))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            # Sort in place, because a sorted copy would double the memory.
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort()
            self._runs.append(merged)
        return repeated
