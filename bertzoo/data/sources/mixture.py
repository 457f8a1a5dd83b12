"""Several sources in one corpus, each with a weight."""

import math
from dataclasses import dataclass

from bertzoo.core.errors import ConfigError

MIXTURE = "mixture"  # data.source of a mixture


@dataclass(frozen=True, kw_only=True)
class MixturePart:
    """Config of one source in a mixture of sources.

    A weight of 2.5 reads the source twice, then half of its documents, chosen by a hash of their text. Only the first
    pass reads held-out documents.
    """

    source: str  # paths, directories, globs or a data set, as in data.source
    text_field: str = ""  # field of the source's records that holds the text; empty: data.text_field
    # how often the corpus holds each document: 0.25 takes a quarter of them, 2.5 all twice and half a third time
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1000:
            raise ConfigError(
                f"weight = {self.weight} of the source {self.source!r} is not above 0 and at most 1000. Use a number "
                "in that range, or remove the source."
            )
        if self.source == MIXTURE:
            raise ConfigError(f"source = {MIXTURE!r} cannot be a part of a mixture. Name a source of text.")

    @property
    def shares(self) -> list[float]:
        """The share of the documents that each pass over the source takes: [1, 1, 0.5] for weight 2.5."""
        return [min(1.0, self.weight - done) for done in range(math.ceil(self.weight))]
