"""Choose the elements that a cut removes from a model's dimensions: lowest scores first, until the budget is met."""

import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.pruning.costs import Cost
from bertzoo.pruning.layout import format_amount
from bertzoo.pruning.structure import Dimension, Structure

NO_MULTIPLES: Mapping[str, int] = MappingProxyType({})


class Bundle(NamedTuple):
    """Elements that are cut together, each as (name of the dimension, index in it).

    score: their mean, but at least that of the previous bundle in the same dimensions: rounding must keep the order.
    """

    score: float
    elements: tuple[tuple[str, int], ...]


def choose(
    structure: Structure,
    scores: Mapping[str, np.ndarray],
    cost: Cost,
    target: float,
    multiples: Mapping[str, int] = NO_MULTIPLES,
) -> dict[str, np.ndarray]:
    """Return {dimension: sorted indices to keep}; the cut takes as few elements as needed, lowest scores first.

    scores: importance of elements by dimension, comparable across dimensions; of equal ones, the first is cut first.
    target: the highest cost allowed.
    multiples: {letter (`structure.LETTERS`): a number that must divide the new sizes of the letter's dimensions}.
    All groups of a dimension, and all dimensions with the same `tie`, lose equally many elements. Each group keeps at
    least one element. Raises UserError if `target` is not below the model's cost, or if no cut meets it.
    """
    ties: dict[str, list[Dimension]] = defaultdict(list)
    for name, dimension in structure.dimensions.items():
        ties[dimension.tie or f"{name} alone"].append(dimension)
    bundles = [bundle for tied in ties.values() for bundle in _bundles(tied, scores, multiples)]
    bundles.sort(key=lambda bundle: bundle.score)  # stable

    def sizes(removed: int) -> dict[str, int]:
        left = structure.sizes
        for name, _ in itertools.chain.from_iterable(bundle.elements for bundle in bundles[:removed]):
            left[name] -= 1
        return left

    first = _fewest_steps(sizes, len(bundles), cost, target, ", or smaller multiples" if multiples else "")
    gone = defaultdict(list)
    for name, index in itertools.chain.from_iterable(bundle.elements for bundle in bundles[:first]):
        gone[name].append(index)
    return {
        name: np.setdiff1d(np.arange(dimension.size), gone[name]) for name, dimension in structure.dimensions.items()
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
        factor = steps[removed - 1]  # stands for a factor just below it
        return {
            name: min(now[name], max(1, math.ceil(factor * size + Fraction(1, 2)) - 1)) for name, size in first.items()
        }

    def sizes(removed: int) -> dict[str, int]:
        return {name: n * groups[name] for name, n in group_sizes(removed).items()}

    left = group_sizes(_fewest_steps(sizes, len(steps), cost, target))
    kept = {}
    for name, dimension in structure.dimensions.items():
        values = np.asarray(scores[name], dtype=np.float64).reshape(dimension.groups, now[name])
        order = np.argsort(values, axis=1, kind="stable")[:, now[name] - left[name] :]
        kept[name] = np.sort((order + now[name] * np.arange(dimension.groups)[:, None]).ravel())
    return kept


def _fewest_steps(sizes: Callable[[int], dict[str, int]], steps: int, cost: Cost, target: float, hint: str = "") -> int:
    """Return the fewest cutting steps after which the cost is at most `target`.

    sizes(n): sizes of the dimensions after n of the possible `steps`; their cost falls as n grows. hint: advice to add
    to the error if all steps are not enough. Raises UserError then, or if no step is necessary.
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
    return bisect_left(range(steps), True, key=lambda taken: cost(sizes(taken)) <= target)


def _bundles(tied: list[Dimension], scores: Mapping[str, np.ndarray], multiples: Mapping[str, int]) -> list[Bundle]:
    """Return the bundles of the `tied` dimensions in the order of cutting; empty if nothing can be cut.

    A bundle takes equally many elements from each group of each dimension, those with the lowest scores. After every
    bundle, the dimensions' sizes are multiples of `multiples[letter]`, greater than 0.
    """
    dimension = tied[0]
    size, multiple = dimension.size // dimension.groups, multiples.get(dimension.letter, 1)
    step = multiple // math.gcd(multiple, dimension.groups)
    if size < step:
        return []
    ordered = []
    for one in tied:
        values = np.asarray(scores[one.name], dtype=np.float64).reshape(one.groups, size)
        for group, order in enumerate(np.argsort(values, axis=1, kind="stable")):
            ordered.append([(one.name, int(group * size + i), float(values[group, i])) for i in order])
    edges = [0, *range(size % step or step, size, step)]
    bundles, least = [], -math.inf
    for start, end in itertools.pairwise(edges):
        elements = [element for row in ordered for element in row[start:end]]
        # Rounding must not give a bundle of larger elements a smaller mean than the bundle before.
        least = max(least, float(np.mean([score for *_, score in elements])))
        bundles.append(Bundle(least, tuple((name, index) for name, index, _ in elements)))
    return bundles
