"""The [data] table of a config."""

import re
from dataclasses import dataclass, field, replace
from typing import Literal

from bertzoo.core.errors import ConfigError
from bertzoo.data.mask import Masking
from bertzoo.data.pack import Packing, SentencePacking
from bertzoo.data.sources import mixture
from bertzoo.data.sources.mixture import MIXTURE, Part
from bertzoo.data.tokenizers.sentencepiece import SentencePiece
from bertzoo.data.tokenizers.wordpiece import WordPiece


@dataclass(frozen=True, kw_only=True)
class Data:
    """What text is read, and how it becomes a tokenised corpus and rows."""

    # Paths, directories and globs, on disk or as gs://…, tfds:NAME and embedded:python, separated by commas; or a
    # tokenised corpus; or "mixture", which stands for the tables below.
    source: str = "embedded:python"
    text_field: str = "text"  # of .jsonl records, .parquet rows and examples of data sets
    mixture: tuple[Part, ...] = ()
    sentences: Literal["split", "lines"] = "split"  # lines: every line is a sentence already
    language: str = "en"  # ISO code; without rules for it, sentencex takes those of a related language or English
    heldout: float = 0.03  # share of the documents, by the hash of their text; SqueezeBERT holds out 3 %
    minimum_tokens: int = 8  # shorter documents are dropped and counted
    piece_bytes: int = 16 << 20  # text of one shard
    tokenizer: WordPiece | SentencePiece = field(default_factory=WordPiece)
    packing: Packing = field(default_factory=SentencePacking)
    masking: Masking = field(default_factory=Masking)

    def __post_init__(self) -> None:
        if not 0 < self.heldout < 1:
            raise ConfigError(f"heldout = {self.heldout} must lie between 0 and 1: both parts need documents")
        if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z]+)?", self.language):
            raise ConfigError(f"language = {self.language!r} is not an ISO code such as 'en'")
        if self.minimum_tokens < 1 or self.piece_bytes < 1:
            raise ConfigError(
                f"minimum_tokens = {self.minimum_tokens} and piece_bytes = {self.piece_bytes} must be positive"
            )
        mixture.check(self.source, self.mixture)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is read: the source alone, or what it is mixed of."""
        if self.source != MIXTURE:
            return (Part(source=self.source, text_field=self.text_field),)
        return tuple(replace(part, text_field=part.text_field or self.text_field) for part in self.mixture)


@dataclass(frozen=True, kw_only=True)
class Text:
    """The part of a pretraining config that a corpus depends on."""

    data: Data = field(default_factory=Data)
