"""The cost of a model as a function of the sizes of its dimensions, and the kinds of budget in [target]."""

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp

from bertzoo.core.errors import ConfigError
from bertzoo.heads import NoHead
from bertzoo.models import Compute
from bertzoo.nn.flops import flops_by_scope
from bertzoo.nn.parameter import init_shapes
from bertzoo.pruning.latency import latency, read_table
from bertzoo.pruning.structure import Cost, Dimension, Sizes, Structure, declare

LEAST = 1e-12  # β of an element without cost: above 0, so that means weighted by β exist


def parameters(structure: Structure) -> Cost:
    """Return a function from sizes of dimensions to the number of parameters of embeddings, encoder and pooler."""
    parts = ("embedding/", "encoder/", "pooler/")  # as in the paper, without heads that only pretraining has
    full = {path: shape for path, shape in structure.shapes.items() if path.startswith(parts)}

    def cost(sizes: Sizes) -> int:
        shapes = {path: list(shape) for path, shape in full.items()}
        for use in structure.axis_uses:
            if use.path in shapes:
                shapes[use.path][use.axis] = sizes[use.dimension] // use.groups
        return sum(map(math.prod, shapes.values()))

    return cost


def flops(structure: Structure, length: int = 128) -> Cost:
    """Return a function from sizes of dimensions to the FLOPs of the pooled output of a row of `length` tokens.

    The function traces the model once and scales the FLOPs of each module. A kernel's FLOPs are proportional to its
    axes; those of attention scores and context, to the heads times the sum of key and value size.
    """
    full = declare(structure.model, NoHead())
    kernels = [(f"/{use.path.removesuffix('kernel')}", use.dimension) for use in full.axis_uses]
    heads = [name for name, dimension in full.dimensions.items() if dimension.letter == "a"]
    total: Counter[tuple[tuple[str, ...], ...]] = Counter()  # by factors, each a sum of sizes
    module, ids = NoHead().build(structure.model, Compute()), jnp.zeros((1, length), jnp.int32)
    params = init_shapes(module.init, jax.random.key(0), ids, ids, ids)
    scopes = flops_by_scope(lambda params, ids: module.apply(params, ids, ids, ids).pooled, params, ids)  # type: ignore
    for scope, operations in scopes.items():
        factors = [(dimension,) for module, dimension in kernels if module in scope]
        for name in heads if not factors else ():
            if f"/{name[:-1]}" in scope:
                factors = [(name,), (f"{name[:-1]}k", f"{name[:-1]}v")]
        total[tuple(factors)] += operations

    def product(factors: tuple[tuple[str, ...], ...], sizes: Sizes) -> int:
        return math.prod(sum(sizes[name] for name in names) for names in factors)

    before = full.sizes
    each = {}
    for factors, operations in total.items():
        each[factors], rest = divmod(operations, product(factors, before))
        assert not rest, f"{operations} operations are no multiple of {factors}"
    return lambda sizes: sum(number * product(factors, before | dict(sizes)) for factors, number in each.items())


def betas(structure: Structure, cost: Cost) -> dict[str, float]:
    """Return the penalty's factors β, {dimension: relative cost of one element} (schuBERT §5); each at least LEAST.

    An element's cost is divided by that of the costliest head or, if no head costs anything, of the costliest element.
    cost: the cost function of the run's target. Raises ConfigError if no removal reduces the cost, which can happen
    with a latency table.
    """
    whole, dimensions = cost(structure.sizes), structure.dimensions

    def removed_cost(dimension: Dimension) -> float:
        """Return the cost of an element: remove one from each group of the dimension and of those tied to it."""
        tied = [one for one in dimensions.values() if one is dimension or (one.tie and one.tie == dimension.tie)]
        # The last element of a dimension stays; one more costs as much as it.
        step = dimension.groups if dimension.size == dimension.groups else -dimension.groups
        changed = cost({**structure.sizes, **{one.name: one.size + step for one in tied}})
        return (changed - whole) / (step * len(tied))

    removed = {name: removed_cost(dimension) for name, dimension in dimensions.items()}
    heads = [removed[name] for name, dimension in dimensions.items() if dimension.letter == "a"]
    unit = max(heads, default=0) or max(removed.values())
    if unit <= 0:
        letters = ", ".join(structure.by_letter)
        raise ConfigError(
            f"removing an element of {letters} saves no time according to target.table, so the run cannot compare the "
            "elements' costs. Measure another table with a smaller `bertzoo benchmark --steps`, or add letters to "
            "cut.dimensions."
        )
    return {name: max(value / unit, LEAST) for name, value in removed.items()}


@dataclass(frozen=True, kw_only=True)
class _Budget:
    """A budget as a number, or as a share of the unpruned model's cost."""

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
