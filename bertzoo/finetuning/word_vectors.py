"""Word vectors of a new model, from the vectors that another model gives each token of its vocabulary alone.

They are the principal components of these vectors, and rare words have longer ones, as in model2vec 0.10
(distill/inference.py), so that the mean of a text's words (the model "static") serves untrained.
"""

import re
from dataclasses import asdict, replace
from typing import Any

import jax
import numpy as np

from bertzoo.conversion.pretrained import Pretrained, check_vocabulary
from bertzoo.core.errors import ConfigError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.heads import SentenceEmbedding, parameter_shapes
from bertzoo.models import Static

WORDS = "embedding/word/embedding"  # the parameter
_ROWS = 1024  # tokens that are embedded at once
_SPREAD = 0.1  # root mean square of a word's numbers, above that of the drawn tables (0.02), which are added to it
_SPARE = re.compile(r"\[unused\d+\]")
_COMMON = 1e-4  # a word of this frequency has half the weight of a rare one (SIF, Arora, Liang & Ma 2017, §3)


def token_vectors(model: Pretrained) -> np.ndarray:
    """Return the vector (V,E) of each token of a model's vocabulary, alone between [CLS] and [SEP]; not normalised.

    Raises ConfigError if the model has no tokenizer or no head for embeddings.
    """
    if not isinstance(model.head, SentenceEmbedding) or model.tokenizer is None:
        raise ConfigError(
            f"{model.origin} gives texts no vectors. Use a model that bertzoo trained with head = 'embedding', or a "
            "directory of sentence-transformers."
        )
    module, params = replace(model, head=replace(model.head, normalise=False)).module()
    run = jax.jit(model.head.objective(module).predict)
    specials, count = model.tokenizer.specials, model.tokenizer.vocab_size
    vectors = []
    for start in range(0, count, _ROWS):
        tokens = np.arange(start, start + _ROWS, dtype=np.int32) % count
        ids = np.stack([np.full(_ROWS, specials.cls), tokens, np.full(_ROWS, specials.sep)], 1).astype(np.int32)
        batch = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": np.ones_like(ids)}
        vectors.append(np.asarray(run(params, batch)["embedding"]))
    return np.concatenate(vectors)[:count]


def principal(vectors: np.ndarray, size: int) -> np.ndarray:
    """Return the first `size` principal components (V,size) of vectors (V,E)."""
    centred = vectors - vectors.mean(0)
    return centred @ np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :size]


def ordinary_tokens(tokenizer: Tokenizer) -> np.ndarray:
    """Return the ids of the tokens that are neither special nor BERT's spare entries [unused0], [unused1] and so on."""
    left_out = {*asdict(tokenizer.specials).values()} - {tokenizer.specials.pad, tokenizer.specials.unk}
    ids = range(tokenizer.vocab_size)
    return np.array([i for i in ids if i not in left_out and not _SPARE.fullmatch(tokenizer.token(i))])


def word_weights(count: int) -> np.ndarray:
    """Return the weight 1e-4 / (1e-4 + frequency) of tokens in the order of their frequency, (count,).

    The frequencies follow Zipf's law; the order of a vocabulary's entries is about that of frequency.
    """
    frequency = 1 / np.arange(2, 2 + count)
    return _COMMON / (_COMMON + frequency / frequency.sum())


def initial_words(source: Pretrained, model: Any) -> dict[str, np.ndarray]:
    """Return the word table of a new model: the principal components of the source's token vectors.

    Raises UserError if the source gives no vectors, or if these have fewer numbers than the table or other words.
    """
    vectors = token_vectors(source)
    assert source.tokenizer is not None  # for the type checker
    check_vocabulary(source.tokenizer, model.vocab_size, "[model]")
    width = getattr(model, "embedding_size", model.hidden_size)
    if width > vectors.shape[1]:
        raise ConfigError(
            f"[model] has words of {width} numbers, but the vectors of {source.origin} have {vectors.shape[1]}. Use at "
            "most as many."
        )
    ids, specials = ordinary_tokens(source.tokenizer), source.tokenizer.specials
    words = principal(vectors[ids], width)
    words *= word_weights(len(ids))[:, None]
    table = np.zeros((model.vocab_size, width), np.float32)
    table[ids] = words * (_SPREAD / np.sqrt(np.mean(np.square(words))))
    table[[specials.pad, specials.unk]] = 0
    return {WORDS: table}


def static_model(source: Pretrained, size: int) -> Pretrained:
    """Return a table of `size` numbers for each token of a source's vocabulary, as a model that embeds texts.

    Raises the errors of `initial_words`.
    """
    model, head = Static(vocab_size=source.model.vocab_size, hidden_size=size), SentenceEmbedding()
    params = {name: np.zeros(shape, np.float32) for name, shape in parameter_shapes(model, head).items()}
    params |= initial_words(source, model) | {"embedding/norm/scale": np.ones(size, np.float32)}
    kept = ("max_length", "license", "language", "base_model")
    return Pretrained(
        model=model,
        head=head,
        params=params,
        tokenizer=source.tokenizer,
        origin=source.origin,
        source={"format": "static", **{key: source.source[key] for key in kept if key in source.source}},
    )
