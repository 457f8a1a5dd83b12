"""The entropy of single tokens: what a model knows that has only learnt how often each token occurs."""

from dataclasses import dataclass

import numpy as np

from bertzoo.data.corpus.corpus import Corpus, Split


@dataclass(frozen=True, kw_only=True)
class UnigramEntropy:
    """Nats per held-out token (special tokens occur in no corpus and count for nothing)."""

    entropy: float  # of the held-out part's own distribution: no fixed distribution does better
    cross_entropy: float  # of the training part's distribution, each count plus one, on the held-out part


def unigram_entropy(corpus: Corpus) -> UnigramEntropy:
    """The two unigram baselines of a corpus; raises CorpusError when a shard is damaged."""
    train, heldout = _counts(corpus, "train"), _counts(corpus, "heldout")
    share = heldout / heldout.sum()
    seen = share > 0
    smoothed = (train + 1) / (train + 1).sum()
    return UnigramEntropy(
        entropy=float(-np.sum(share[seen] * np.log(share[seen]))),
        cross_entropy=float(-np.sum(share[seen] * np.log(smoothed[seen]))),
    )


def _counts(corpus: Corpus, split: Split) -> np.ndarray:
    specials = corpus.tokenizer.specials
    counts = np.zeros(corpus.tokenizer.vocab_size, np.int64)
    for tokens in corpus.stream(split):
        counts += np.bincount(tokens, minlength=len(counts))
    kept = np.ones(len(counts), bool)
    kept[[specials.pad, specials.cls, specials.sep, specials.mask]] = False
    return counts[kept]
