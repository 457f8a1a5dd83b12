"""The kinds of budget in [target]: the most that a pruned model may cost."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertzoo.core.errors import ConfigError
from bertzoo.pruning.costs import Cost, flops, parameters
from bertzoo.pruning.latency import latency, read_table
from bertzoo.pruning.structure import Structure


@dataclass(frozen=True, kw_only=True)
class _Budget:
    """A budget as a number (`count`), or as a share of the unpruned model's cost."""

    count: float | None = None  # the budget as a number; exactly one of count and share
    share: float | None = None  # the budget as a share of the unpruned model's cost

    def __post_init__(self):
        if (self.count is None) == (self.share is None):
            both = "neither is set" if self.count is None else f"count = {self.count:,.12g} and share = {self.share}"
            raise ConfigError(
                f"a budget is either a count or a share of the unpruned model, but {both}. Set count or share."
            )
        if self.count is not None and not 0 < self.count < float("inf"):
            raise ConfigError(f"count = {self.count} is not a finite number above 0. Use a positive, finite number.")
        if self.share is not None and not 0 < self.share < 1:
            raise ConfigError(f"share = {self.share} is not a share between 0 and 1. Use a share such as 0.6.")

    def amount(self, whole: float) -> float:
        """Return the budget of a model whose unpruned cost is `whole`."""
        return self.count or whole * (self.share or 0.0)


@dataclass(frozen=True, kw_only=True)
class Parameters(_Budget):
    """A budget in number of parameters, counted in embeddings, encoder and pooler."""

    kind: Literal["parameters"] = "parameters"
    unit = "parameters"

    def cost(self, structure: Structure) -> Cost:
        return parameters(structure)


@dataclass(frozen=True, kw_only=True)
class Flops(_Budget):
    """A budget in operations, 2 per multiply-add, that compute the pooled output of a row of `length` tokens."""

    kind: Literal["flops"] = "flops"
    length: int = 128  # tokens of the row
    unit = "operations"

    def cost(self, structure: Structure) -> Cost:
        return flops(structure, self.length)


@dataclass(frozen=True, kw_only=True)
class Latency(_Budget):
    """A budget in milliseconds for one row of `length` tokens.

    The times are those of the device on which `bertzoo benchmark --table` measured `table`.
    """

    kind: Literal["latency"] = "latency"
    table: str = ""  # file that `bertzoo benchmark --table` wrote
    length: int = 128  # tokens of the row
    unit = "milliseconds"

    def __post_init__(self):
        if not self.table:
            raise ConfigError(
                'kind = "latency" needs table = "FILE", with the latencies of encoders on a device. Measure the table '
                "with `bertzoo benchmark CONFIG --table=FILE`."
            )
        super().__post_init__()

    def cost(self, structure: Structure) -> Cost:
        table = read_table(Path(self.table))
        if table.length != self.length:
            raise ConfigError(
                f"target.length = {self.length}, but {self.table} was measured on rows of {table.length} tokens. Use "
                f"target.length = {table.length}, or measure another table with `bertzoo benchmark --lengths`."
            )
        return latency(structure, table, self.table)


Target = Parameters | Flops | Latency
