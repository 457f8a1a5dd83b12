"""What a tokenizer must offer, and the checks that all kinds share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bertzoo.core.errors import CorpusError
from bertzoo.core.paths import on_disk

TRAIN_BYTES = 256 << 20  # a vocabulary is trained on at most this much text, the first of the source


@dataclass(frozen=True, kw_only=True)
class Specials:
    """The ids of the tokens that every model needs."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


class Tokenizer(Protocol):
    """A trained or loaded tokenizer."""

    @property
    def vocab_size(self) -> int:
        """The number of entries, special ones included."""
        ...

    @property
    def specials(self) -> Specials:
        """The ids of [PAD], [UNK], [CLS], [SEP] and [MASK]."""
        ...

    @property
    def continuation(self) -> np.ndarray:
        """(V,) bool: True where an entry continues the word before it."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The int32 ids of every text, without special tokens (text such as "[MASK]" is spelt out)."""
        ...

    def encode_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of every text the ids as from `encode_batch`, and offsets (n,2) int32: the characters that each stands for,
        from the first to past the last.
        """
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text; special tokens stay visible."""
        ...

    def token(self, index: int) -> str:
        """The entry with this id as the vocabulary spells it."""
        ...

    @property
    def contents(self) -> bytes:
        """The vocabulary as its file has it."""
        ...

    @property
    def config(self) -> Any:
        """The WordPiece or SentencePiece that it was made by; its path and vocab_size may be those of another."""
        ...

    def save(self, directory: Path) -> None:
        """Writes what `tokenizer.load` reads back."""
        ...


def find_specials(ids: dict[str, int], names: Mapping[str, Sequence[str]], origin: str) -> Specials:
    """The ids of the special tokens under any of their spellings; raises CorpusError naming those that are missing."""
    found = {field: next((ids[name] for name in spellings if name in ids), None) for field, spellings in names.items()}
    missing = [names[field][0] for field, index in found.items() if index is None]
    if missing:
        raise CorpusError(
            f"the vocabulary {origin} has no {', '.join(missing)}: add the missing entries or train a new vocabulary"
        )
    return Specials(**{field: index for field, index in found.items() if index is not None})


def check_size(size: int, asked: int, origin: str) -> None:
    """Raises CorpusError when a loaded vocabulary has more entries than vocab_size allows."""
    if size > asked:
        raise CorpusError(
            f"the vocabulary {origin} has {size:,} entries, more than vocab_size = {asked:,}: set vocab_size = {size}"
        )


def existing(path: str) -> Path:
    """The path of a vocabulary file; raises CorpusError when it does not exist."""
    file = on_disk(path, "the vocabulary file", "copy it to this machine and name the copy")
    if not file.is_file():
        raise CorpusError(f"the vocabulary file {path} does not exist")
    return file
