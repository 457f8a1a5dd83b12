"""Unigram entropy: the loss of a model that predicts every token by its frequency alone."""

from dataclasses import dataclass

import numpy as np

from bertzoo.data.corpus.reader import Corpus, Split


@dataclass(frozen=True, kw_only=True)
class UnigramEntropy:
    """Losses of two unigram models on the held-out tokens, in nats per token: baselines for a model's loss.

    [PAD], [CLS], [SEP] and [MASK] are not counted.

    entropy: loss of the best unigram model, which has the frequencies of the held-out tokens.
    cross_entropy: loss of the model that has the frequencies of the training tokens.
    """

    entropy: float  # entropy of the held-out distribution: the least loss that any fixed distribution can have
    cross_entropy: float  # loss of the add-one smoothed training distribution on the held-out tokens


def unigram_entropy(corpus: Corpus) -> UnigramEntropy:
    """Return the two unigram losses of a corpus; raises CorpusError if a shard is damaged."""
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
    ordinary = np.ones(len(counts), bool)
    ordinary[[specials.pad, specials.cls, specials.sep, specials.mask]] = False
    return counts[ordinary]
