"""The unigram baselines against a count by hand."""

import math
from collections import Counter

import numpy as np
import pytest

from bertzoo.data.corpus.reader import unigram_entropy


def test_entropies_equal_a_count_by_hand(corpus):
    train, heldout = (Counter(np.concatenate(list(corpus.stream(split))).tolist()) for split in ("train", "heldout"))
    total, entries = sum(heldout.values()), corpus.tokenizer.vocab_size - 4  # all but [PAD] [CLS] [SEP] [MASK]
    assert not {0, 2, 3, 4} & (train.keys() | heldout.keys())
    entropy = -sum(n / total * math.log(n / total) for n in heldout.values())
    smoothed = {token: (train[token] + 1) / (sum(train.values()) + entries) for token in heldout}
    cross = -sum(n / total * math.log(smoothed[token]) for token, n in heldout.items())
    result = unigram_entropy(corpus)
    assert result.entropy == pytest.approx(entropy, rel=1e-12)
    assert result.cross_entropy == pytest.approx(cross, rel=1e-12)
    assert 0 < result.entropy < result.cross_entropy < math.log(entries) * 1.5
