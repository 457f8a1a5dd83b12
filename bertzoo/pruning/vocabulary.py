"""Cut a model's vocabulary to the tokens of some texts: fewer word embeddings, the same vectors for these texts.

The word embeddings are most of a small model: 11.7 of MiniLM's 22.6 M parameters. A text whose tokens are all kept is
split as before, because WordPiece takes the longest piece that fits (Wu et al. 2016, §4.1) and a unigram model the best
split (Kudo 2018, §3.1): tokens that neither of them chose have no effect.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.heads import parameter_shapes


def count_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> np.ndarray:
    """Return the count of each token of a vocabulary in texts, (V,) int64."""
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for ids in tokenizer.occurring(texts):
        np.add.at(counts, ids, 1)
    return counts


def prune_vocabulary(model: Pretrained, texts: Sequence[str], size: int = 0) -> Pretrained:
    """Return the model with the tokens of its vocabulary that occur in texts, in their order.

    Tokens of one character are kept if the character occurs in the texts, so that other words have tokens too.
    size: largest number of tokens, the most frequent ones; 0: all that occur. Special tokens are always kept.
    Raises UserError if the model has no tokenizer, if nothing occurs, if `size` has no room for the special tokens and
    the characters, or if the texts would be split otherwise.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise UserError(f"{model.origin} has no tokenizer, so its vocabulary cannot be cut. Use a model with one.")
    counts = count_tokens(tokenizer, texts)
    if not counts.any():
        raise UserError("the texts have no tokens. Give the texts that the model will read.")
    token_ids = _kept_ids(tokenizer, counts, {character for text in texts for character in text}, size)
    smaller = tokenizer.subset(token_ids.tolist())
    encoded = () if size else zip(texts, tokenizer.encode_batch(texts), smaller.encode_batch(texts), strict=True)
    for text, old, new in encoded:
        if not np.array_equal(old, token_ids[new]):
            raise UserError(
                f"the smaller vocabulary splits the text {text[:60]!r} otherwise than the whole one. Merges of byte "
                "pairs depend on tokens that no text has. Use a WordPiece or unigram vocabulary."
            )
    source = {**model.source, "vocabulary": f"{len(token_ids)} of {tokenizer.vocab_size} entries"}
    pruned = _cut(replace(model, source=source), smaller, token_ids)
    generator = model.generator and _cut(model.generator, smaller, token_ids)
    return replace(pruned, generator=generator)


def _kept_ids(tokenizer: Tokenizer, counts: np.ndarray, characters: set[str], size: int) -> np.ndarray:
    """Return the ids to keep, in ascending order."""
    characters |= {character for character in "".join(characters).lower()}
    names = [tokenizer.plain(index) for index in range(len(counts))]
    always = tokenizer.needed
    always |= {index for index, name in enumerate(names) if len(name) == 1 and name in characters}
    rest = [index for index in np.argsort(-counts, kind="stable").tolist() if counts[index] and index not in always]
    if size and size <= len(always):
        raise UserError(
            f"size = {size} is not above {len(always)}, the special tokens and texts' characters. Use a larger one."
        )
    return np.array(sorted([*always, *(rest[: size - len(always)] if size else rest)]))


def _cut(model: Pretrained, tokenizer: Tokenizer, token_ids: np.ndarray) -> Pretrained:
    """Return the model with the indices `token_ids` of every axis that has the vocabulary's size."""
    smaller = replace(model.model, vocab_size=len(token_ids))
    whole, shapes = (parameter_shapes(config, model.head) for config in (model.model, smaller))
    params = dict(model.params)
    for name, array in model.params.items():
        for axis, (old, new) in enumerate(zip(whole[name], shapes[name], strict=True)):
            if old != new:
                params[name] = array = array.take(token_ids, axis)
    unused = dict(model.unused)  # no config has their shapes
    for name, array in model.unused.items():
        for axis in (axis for axis, size in enumerate(array.shape) if size == model.model.vocab_size):
            unused[name] = array = array.take(token_ids, axis)
    return replace(model, model=smaller, params=params, tokenizer=tokenizer, unused=unused)
