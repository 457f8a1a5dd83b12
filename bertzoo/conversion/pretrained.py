"""A model out of any directory: its config, its head, its parameters and its tokenizer."""

from dataclasses import dataclass, field
from typing import Any

import flax.traverse_util
import jax.numpy as jnp
import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.models import Compute


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """What every reader gives and every writer takes.

    params: by path, such as `encoder/layers_0/attention/query/kernel`, float32. origin: the directory's name in
    messages. source: where it came from, as flat text and numbers, for the record. others: by the kind of its head,
    what the same directory holds besides, such as the generator of a discriminator. generator: a run's, by the paths
    that it has there.
    """

    model: Any
    head: Any
    params: dict[str, np.ndarray]
    tokenizer: Tokenizer | None
    origin: str
    source: dict[str, str | int] = field(default_factory=dict)
    others: dict[str, "Pretrained"] = field(default_factory=dict)
    generator: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def parameter_count(self) -> int:
        """How many numbers its parameters are, with its head's."""
        return sum(array.size for array in self.params.values())

    def module(self) -> tuple[Any, Any]:
        """The model under its head as a Linen module, and its parameters, nested as that takes them."""
        arrays = {name: jnp.asarray(array) for name, array in self.params.items()}
        return self.head.build(self.model, Compute()), flax.traverse_util.unflatten_dict(arrays, sep="/")


def check_vocabulary(tokenizer: Tokenizer | None, rows: int, origin: str) -> None:
    """Raises UserError unless the word table has a row for every entry, and no more spare ones than fill up a multiple.

    Tables are widened to a multiple of 8 to 128 for the hardware's sake (SqueezeBERT: 30528 for 30522 entries).
    """
    if tokenizer is None:
        return
    entries = tokenizer.vocab_size
    if entries > rows or not fits(entries, rows):
        raise UserError(
            f"{origin}: its vocabulary has {entries:,} entries, which does not match the {rows:,} rows of its embedding"
        )


def fits(entries: int, rows: int) -> bool:
    """Whether a table's rows are its vocabulary's entries, rounded up to a multiple of 8, 16, 32, 64 or 128."""
    return rows in {entries, *(-(-entries // multiple) * multiple for multiple in (8, 16, 32, 64, 128))}
