"""The cost of a model by the sizes of its dimensions, the kinds of budget in [target], and the elements to keep.

A cut removes the elements with the lowest scores until the budget is met.
"""

import itertools
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.heads import NoHead
from bertzoo.models import Compute
from bertzoo.nn.flops import flops_by_scope
from bertzoo.nn.parameter import init_shapes
from bertzoo.pruning.latency import latency, read_table
from bertzoo.pruning.layout import format_amount
from bertzoo.pruning.structure import Cost, Dimension, Sizes, Structure, declare

LEAST = 1e-12  # β of an element without cost: above 0, so that means weighted by β exist


def parameters(structure: Structure) -> Cost:
    """Return a function from sizes of dimensions to the number of parameters of embeddings, encoder and pooler."""
    prefixes = ("embedding/", "encoder/", "pooler/")  # as in the paper, without heads that only pretraining has
    full = {path: shape for path, shape in structure.shapes.items() if path.startswith(prefixes)}

    def cost(sizes: Sizes) -> int:
        shapes = {path: list(shape) for path, shape in full.items()}
        for use in structure.axis_uses:
            if use.path in shapes:
                shapes[use.path][use.axis] = sizes[use.dimension] // use.groups
        return sum(map(math.prod, shapes.values()))

    return cost


def flops(structure: Structure, length: int = 128) -> Cost:
    """Return a function from sizes of dimensions to the FLOPs of the pooled output of a sequence of `length` tokens.

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
    factor_flops = {}
    for factors, operations in total.items():
        factor_flops[factors], rest = divmod(operations, product(factors, before))
        assert not rest, f"{operations} operations are no multiple of {factors}"
    return lambda sizes: sum(n * product(factors, before | dict(sizes)) for factors, n in factor_flops.items())


def betas(structure: Structure, cost: Cost) -> dict[str, float]:
    """Return the penalty's factors β, {dimension: relative cost of one element} (schuBERT §5); each at least LEAST.

    An element's cost is divided by that of the costliest head or, if no head costs anything, of the costliest element.
    cost: the cost function of the run's target. Raises ConfigError if no removal reduces the cost, which can happen
    with a latency table.
    """
    whole, dimensions = cost(structure.sizes), structure.dimensions

    def removed_cost(dimension: Dimension) -> float:
        """Return the cost of an element: remove one from each group of the dimension and of its tied dimensions."""
        tied = [d for d in dimensions.values() if d is dimension or (d.tie and d.tie == dimension.tie)]
        # The last element of a dimension is kept; its cost is that of one more element.
        step = dimension.groups if dimension.size == dimension.groups else -dimension.groups
        changed = cost({**structure.sizes, **{d.name: d.size + step for d in tied}})
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
        check_range(self, "count", above=0, advice="Use a positive, finite number.")
        check_range(self, "share", above=0, below=1, advice="Use a share such as 0.6.")

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
    """A budget in operations, 2 per multiply-add, that compute the pooled output of a sequence of `length` tokens."""

    kind: Literal["flops"] = "flops"
    length: int = 128  # tokens of the sequence
    unit = "operations"

    def cost(self, structure: Structure) -> Cost:
        return flops(structure, self.length)


@dataclass(frozen=True, kw_only=True)
class Latency(_Budget):
    """A budget in milliseconds for one sequence of `length` tokens.

    The times are those of the device on which `bertzoo benchmark --table` measured `table`.
    """

    kind: Literal["latency"] = "latency"
    table: str = ""  # file that `bertzoo benchmark --table` wrote
    length: int = 128  # tokens of the sequence
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
                f"target.length = {self.length}, but {self.table} was measured on {table.length} tokens. Use "
                f"target.length = {table.length}, or measure another table with `bertzoo benchmark --lengths`."
            )
        return latency(structure, table, self.table)


Target = Parameters | Flops | Latency


class Bundle(NamedTuple):
    """Elements that are cut together, each as (name of the dimension, index in it).

    score: their mean, at least that of the previous bundle in the same dimensions: rounding must keep the order.
    """

    score: float
    elements: tuple[tuple[str, int], ...]


def choose(
    structure: Structure,
    scores: Mapping[str, np.ndarray],
    cost: Cost,
    target: float,
    multiples: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """Return {dimension: sorted indices to keep}; the cut takes as few elements as needed, lowest scores first.

    scores: importance of elements by dimension, comparable across dimensions; of equal scores, the first is cut first.
    target: the highest cost allowed.
    multiples: {letter (`structure.LETTERS`): a number that must divide the new sizes of the letter's dimensions}.
    All groups of a dimension, and all dimensions with the same `tie`, lose equally many elements. Each group keeps at
    least one element. Raises UserError if `target` is not below the model's cost, or if no cut meets it.
    """
    ties: dict[str, list[Dimension]] = defaultdict(list)
    for name, dimension in structure.dimensions.items():
        ties[dimension.tie or f"{name} alone"].append(dimension)
    bundles = [bundle for tied in ties.values() for bundle in _bundles(tied, scores, multiples or {})]
    bundles.sort(key=lambda bundle: bundle.score)  # stable

    def sizes(removed: int) -> dict[str, int]:
        remaining = structure.sizes
        for name, _ in itertools.chain.from_iterable(bundle.elements for bundle in bundles[:removed]):
            remaining[name] -= 1
        return remaining

    first = _fewest_steps(sizes, len(bundles), cost, target, ", or smaller multiples" if multiples else "")
    dropped = defaultdict(list)
    for name, index in itertools.chain.from_iterable(bundle.elements for bundle in bundles[:first]):
        dropped[name].append(index)
    return {
        name: np.setdiff1d(np.arange(dimension.size), dropped[name]) for name, dimension in structure.dimensions.items()
    }


def uniform(
    structure: Structure, scores: Mapping[str, np.ndarray], cost: Cost, target: float, whole: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Return the indices to keep in every dimension, as `choose` does, but shrink all dimensions by one factor.

    This is schuBERT's "BERT-all uniform". The factor is the largest that meets `target`. The new size of a group is its
    size in the unpruned model times the factor, rounded to the nearest integer, but at least 1 and at most its current
    size. Every group keeps its elements with the largest scores.
    whole: sizes of the unpruned model. With the current sizes instead, rounding could keep a few heads forever.
    """
    groups = {name: dimension.groups for name, dimension in structure.dimensions.items()}
    now = {name: dimension.size // groups[name] for name, dimension in structure.dimensions.items()}  # group sizes
    first = {name: whole[name] // groups[name] for name in now}
    # A size n becomes n - 1 where the factor falls below (n - 1/2) / first.
    steps = sorted({Fraction(2 * n - 1, 2 * size) for size in first.values() for n in range(2, size + 1)}, reverse=True)

    def group_sizes(removed: int) -> dict[str, int]:
        if not removed:
            return now
        factor = steps[removed - 1]  # the limit of factors just below it
        return {
            name: min(now[name], max(1, math.ceil(factor * size + Fraction(1, 2)) - 1)) for name, size in first.items()
        }

    def sizes(removed: int) -> dict[str, int]:
        return {name: n * groups[name] for name, n in group_sizes(removed).items()}

    remaining = group_sizes(_fewest_steps(sizes, len(steps), cost, target))
    indices = {}
    for name, dimension in structure.dimensions.items():
        values = np.asarray(scores[name], dtype=np.float64).reshape(dimension.groups, now[name])
        order = np.argsort(values, axis=1, kind="stable")[:, now[name] - remaining[name] :]
        indices[name] = np.sort((order + now[name] * np.arange(dimension.groups)[:, None]).ravel())
    return indices


def _fewest_steps(sizes: Callable[[int], dict[str, int]], steps: int, cost: Cost, target: float, hint: str = "") -> int:
    """Return the fewest cutting steps after which the cost is at most `target`.

    sizes(n): sizes of the dimensions after n of the possible `steps`; their cost falls as n grows. hint: advice to add
    to the error. Raises UserError if all steps are not enough, or if no step is necessary.
    """
    whole, least = cost(sizes(0)), cost(sizes(steps))
    budget, most = format_amount(target, whole), format_amount(whole, whole)
    if target >= whole:
        raise UserError(f"a budget of {budget} is not below the model's cost of {most}. Use a smaller budget.")
    if target < least:
        raise UserError(
            f"a budget of {budget} is below {format_amount(least, whole)}, the model's cost after the largest possible "
            f"cut. Use a larger budget, or cut more dimensions{hint}."
        )
    return bisect_left(range(steps), True, key=lambda count: cost(sizes(count)) <= target)


def _bundles(tied: list[Dimension], scores: Mapping[str, np.ndarray], multiples: Mapping[str, int]) -> list[Bundle]:
    """Return the bundles of the `tied` dimensions in the order of cutting; empty if nothing can be cut.

    A bundle takes equally many elements from each group of each dimension, the lowest scores first. After every
    bundle, the dimensions' sizes are multiples of `multiples[letter]`, greater than 0.
    """
    dimension = tied[0]
    size, multiple = dimension.size // dimension.groups, multiples.get(dimension.letter, 1)
    step = multiple // math.gcd(multiple, dimension.groups)
    if size < step:
        return []
    ordered = []
    for member in tied:
        values = np.asarray(scores[member.name], dtype=np.float64).reshape(member.groups, size)
        for group, order in enumerate(np.argsort(values, axis=1, kind="stable")):
            ordered.append([(member.name, int(group * size + i), float(values[group, i])) for i in order])
    edges = [0, *range(size % step or step, size, step)]
    bundles, least = [], -math.inf
    for start, end in itertools.pairwise(edges):
        elements = [element for row in ordered for element in row[start:end]]
        least = max(least, float(np.mean([score for *_, score in elements])))
        bundles.append(Bundle(least, tuple((name, index) for name, index, _ in elements)))
    return bundles
