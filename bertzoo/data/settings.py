"""The [data] table of a config."""

import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError
from bertzoo.data.mask import Masking
from bertzoo.data.pack import Packing, SentencePacking
from bertzoo.data.tokenizers.tokenizer import TokenizerConfig, WordPiece

MIXTURE = "mixture"  # data.source of a mixture


@dataclass(frozen=True, kw_only=True)
class MixtureSource:
    """Config of one source in a mixture of sources.

    A weight of 2.5 reads the source twice, then half of its documents, chosen by a hash of their text. Only the first
    pass reads held-out documents.
    """

    source: str  # paths, directories, globs or a data set, as in data.source
    text_field: str = ""  # field of the source's records that holds the text; empty: data.text_field
    # how often the corpus holds each document: 0.25 takes a quarter of them, 2.5 all twice and half of them once more
    weight: float = 1.0

    def __post_init__(self) -> None:
        advice = f"Use a number in that range, or remove the source {self.source!r}."
        check_range(self, "weight", above=0, most=1000, advice=advice)
        if self.source == MIXTURE:
            raise ConfigError(f"source = {MIXTURE!r} cannot be a source of a mixture. Name a source of text.")

    @property
    def shares(self) -> list[float]:
        """The share of the documents that each pass over the source takes: [1, 1, 0.5] for weight 2.5."""
        return [min(1.0, self.weight - start) for start in range(math.ceil(self.weight))]


@dataclass(frozen=True, kw_only=True)
class Data:
    """Settings of the training text: its source, its tokenizer, and how documents become masked rows."""

    RETIRED: ClassVar[dict[str, Any]] = {"limits": None}

    # Text: paths, directories, globs or URLs (gs://…), tfds:NAME and embedded:python, separated by commas. Or a
    # tokenised corpus. Or "mixture", for the sources in `mixture`.
    source: str = "embedded:python"
    text_field: str = "text"  # field with the text, in .jsonl records, .parquet and .arrow rows and tfds: data sets
    mixture: tuple[MixtureSource, ...] = ()  # sources and their weights; only if source = "mixture"
    sentences: Literal["split", "lines"] = "split"  # split lines into sentences, or use each line as one
    language: str = "en"  # ISO code for splitting sentences; sentencex falls back to a related language or English
    heldout: float = 0.03  # share of documents held out, by a hash of their text; 3 % as in SqueezeBERT
    minimum_tokens: int = 8  # fewest tokens of a document; shorter documents are dropped and counted
    piece_bytes: int = 16 << 20  # bytes of text that become one shard
    tokenizer: TokenizerConfig = field(default_factory=WordPiece)  # the vocabulary, loaded or trained
    packing: Packing = field(default_factory=SentencePacking)  # how documents become rows
    masking: Masking = field(default_factory=Masking)  # which tokens are predicted

    def __post_init__(self) -> None:
        advice = "The training and the held-out split both need documents. Use a share such as 0.01."
        check_range(self, "heldout", above=0, below=1, advice=advice)
        if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z]+)?", self.language):
            raise ConfigError(f"language = {self.language!r} is not an ISO 639 code. Use a code such as 'en'.")
        check_range(self, "minimum_tokens", "piece_bytes", least=1, advice="Use a larger value.")
        if self.source == MIXTURE and not self.mixture:
            raise ConfigError(f"source = {MIXTURE!r} has no sources. Add them as [[data.mixture]] tables.")
        for name, count in Counter(source.source for source in self.mixture).items():
            if count > 1:
                raise ConfigError(f"the mixture names {name!r} twice. Name it once, with the sum of the weights.")

    @property
    def sources(self) -> tuple[MixtureSource, ...]:
        """The sources to read: those of the mixture, or the source alone."""
        if self.source != MIXTURE:
            return (MixtureSource(source=self.source, text_field=self.text_field),)
        return tuple(replace(source, text_field=source.text_field or self.text_field) for source in self.mixture)


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """The table of a pretraining config that determines a corpus."""

    data: Data = field(default_factory=Data)
