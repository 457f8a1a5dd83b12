"""The set of seen documents, against a Python set."""

import tracemalloc

import numpy as np

from bertzoo.data.hashes import KeySet, document_keys


def test_seen_documents_equal_a_python_set():
    rng = np.random.default_rng(0)
    seen, expected = KeySet(), set()
    for size in (1, 0, 700, 5, 3000, 64, 2000):
        new = rng.integers(0, 2500, size).astype(np.uint64) << np.uint64(40)
        repeated = []
        for key in new.tolist():
            repeated.append(key in expected)
            expected.add(key)
        assert seen.add(new).tolist() == repeated


def test_seen_takes_8_bytes_a_document():
    rng = np.random.default_rng(0)
    seen, count = KeySet(), 1 << 17
    tracemalloc.start()
    for _ in range(64):
        seen.add(rng.integers(0, 1 << 63, count // 64).astype(np.uint64))
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 8 * count <= held < 8.2 * count and peak < 26 * count


def test_keys_depend_on_the_text_alone():
    first = document_keys(("a", "b", "a"))
    assert first[0] == first[2] != first[1] and first.dtype == np.uint64 and len(document_keys(())) == 0
