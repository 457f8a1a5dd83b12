"""Several sources in one corpus, each with a weight."""

import math
from dataclasses import dataclass

from bertzoo.core.errors import ConfigError

MIXTURE = "mixture"  # data.source of a mixture


@dataclass(frozen=True, kw_only=True)
class MixturePart:
    """One source of a mixture.

    text_field: of its records; empty for data.text_field. weight: how often the corpus holds each document; 0.25 takes
    a quarter of them, chosen by the hash of their text, 2.5 takes all twice and half a third time. Held-out documents
    are taken at most once.
    """

    source: str
    text_field: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ConfigError(f"weight = {self.weight} of the source {self.source!r} must be positive")
        if self.source == MIXTURE:
            raise ConfigError(f"source = {MIXTURE!r} cannot be a part of a mixture: name its parts instead")

    @property
    def shares(self) -> list[float]:
        """The share of the documents that each pass over the source takes, such as [1, 1, 0.5]."""
        return [min(1.0, self.weight - done) for done in range(math.ceil(self.weight))]


def check_mixture(source: str, mixture: tuple[MixturePart, ...]) -> None:
    """Raise ConfigError for a mixture without parts or with one source twice."""
    if source == MIXTURE and not mixture:
        raise ConfigError(f"source = {MIXTURE!r} has no parts: give them as [[data.mixture]] tables")
    for index, part in enumerate(mixture):
        if part.source in [other.source for other in mixture[:index]]:
            raise ConfigError(f"the mixture names {part.source!r} twice: give it once, with the sum of the weights")
