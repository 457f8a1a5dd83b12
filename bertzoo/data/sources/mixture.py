"""Several sources in one corpus, each with a weight."""

import math
from dataclasses import dataclass

from bertzoo.core.errors import ConfigError

MIXTURE = "mixture"  # the source that stands for the parts of a mixture


@dataclass(frozen=True, kw_only=True)
class Part:
    """A source within a mixture."""

    source: str
    text_field: str = ""  # of its records; data.text_field where none is given
    # How often each of its documents is in the corpus: 0.25 stands for a quarter of them, chosen by the hash of their
    # text, 2.5 for all of them twice and half of them a third time. What is held out is there at most once.
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ConfigError(f"weight = {self.weight} of the source {self.source!r} must be positive")
        if self.source == MIXTURE:
            raise ConfigError(f"source = {MIXTURE!r} cannot be a part of a mixture: name what it is made of")

    @property
    def shares(self) -> list[float]:
        """The share of the documents that each pass over the source takes."""
        return [min(1.0, self.weight - done) for done in range(math.ceil(self.weight))]


def check(source: str, mixture: tuple[Part, ...]) -> None:
    """Raises ConfigError for a mixture without parts, and for one that names a source twice."""
    if source == MIXTURE and not mixture:
        raise ConfigError(f"source = {MIXTURE!r} has no parts: give them as [[data.mixture]] tables")
    for index, part in enumerate(mixture):
        if part.source in [other.source for other in mixture[:index]]:
            raise ConfigError(f"the mixture names {part.source!r} twice: give it once, with the sum of the weights")
