"""Pretrained: a model that was read from a directory, with its head, parameters and tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import flax.traverse_util
import jax.numpy as jnp
import numpy as np

from bertzoo.core.documents import show
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.models import Compute

_TEXTS = ("format?", "path?", "from?", "task?", "sentence?", "license?", "language?", "base_model?", "default_prompt?")
# `Pretrained.source` on disk, as a pattern of core/documents.
SOURCE = {
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(("step?", "seed?", "epoch?", "max_length?", "nulls?", "entries?"), int),
    "own?": dict,
    "prompts?": {str: str},
    "parameters_sha256": str,
}


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A model in the form that every reader returns and every writer takes."""

    model: Any
    head: Any
    params: dict[str, np.ndarray]  # float32 arrays by path, such as `encoder/layers_0/attention/query/kernel`
    tokenizer: Tokenizer | None
    origin: str  # the directory's name in messages
    # texts and numbers that record the model's origin; for the task "own", also `CustomFiles.columns`; of a
    # model of sentence-transformers, also `prompts`, texts to put before a text, by name
    source: dict[str, Any] = field(default_factory=dict)
    generator: "Pretrained | None" = None  # of a discriminator, the model beside it that fills the blanks, or None
    # parameters by path that the model lacks, but from which a new run may start: a generator's beside its
    # discriminator, or a pooler that sentence-transformers does not use
    unused: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def parameter_count(self) -> int:
        """Number of parameters, including the head's."""
        return sum(array.size for array in self.params.values())

    def module(self) -> tuple[Any, Any]:
        """Return the model with its head as a Linen module, and its parameters as that module's nested dict."""
        arrays = {name: jnp.asarray(array) for name, array in self.params.items()}
        return self.head.build(self.model, Compute()), flax.traverse_util.unflatten_dict(arrays, sep="/")


def inherited(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Pretrained.source` that derived models inherit: license, language and base_model."""
    return {key: source[key] for key in ("license", "language", "base_model") if key in source}


def source_number(source: Mapping[str, Any], name: str, default: float) -> float:
    """Return field `name` of a `Pretrained.source` as a number, else `default`; raises UserError if it is not one."""
    try:
        return type(default)(source.get(name, default))
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(
            f"the model's source.{name} = {show(source[name])} is not a number. Convert the model again."
        ) from error


def check_vocabulary(tokenizer: Tokenizer | None, rows: int, origin: str, recorded: int | None = None) -> None:
    """Raise UserError if word embeddings of `rows` rows do not fit the tokenizer's vocabulary.

    Some projects round the number of rows up (SqueezeBERT: 30528 rows for 30522 tokens); see `fits`. Without a
    tokenizer, there is no check.

    recorded: vocabulary size that the model's file records. It replaces this rule, because a tokenizer that learnt
    from a small text may have far fewer tokens than a run has rows.
    """
    if tokenizer is None:
        return
    size, advice = tokenizer.vocab_size, "Use the vocabulary that the model was trained with."
    if recorded is not None and size != recorded:
        raise UserError(f"{origin}: the vocabulary has {size:,} tokens, but the model's had {recorded:,}. {advice}")
    if size > rows or (recorded is None and not fits(size, rows)):
        raise UserError(f"{origin}: the vocabulary has {size:,} tokens, but the embedding has {rows:,} rows. {advice}")


def fits(vocab_size: int, rows: int) -> bool:
    """Return whether `rows` equals `vocab_size`, or `vocab_size` rounded up to a multiple of 8, 16, 32, 64 or 128."""
    return rows in {vocab_size, *(-(-vocab_size // multiple) * multiple for multiple in (8, 16, 32, 64, 128))}
