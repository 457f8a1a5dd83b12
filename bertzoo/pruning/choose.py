"""Which elements go: the smallest of all, until the model is within its budget."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.pruning.costs import Cost
from bertzoo.pruning.structure import Dimension, Structure
from bertzoo.runs.prune_layout import format_amount as shown

NO_MULTIPLES: Mapping[str, int] = MappingProxyType({})


class Bundle(NamedTuple):
    """Elements (dimension, index) that go together or not at all, and how much they matter."""

    score: float
    elements: tuple[tuple[str, int], ...]


def choose(
    structure: Structure,
    scores: Mapping[str, np.ndarray],
    cost: Cost,
    target: float,
    multiples: Mapping[str, int] = NO_MULTIPLES,
) -> dict[str, np.ndarray]:
    """For every dimension the sorted indices that stay: as many of the smallest scores as needed go, and no more.

    scores: |α| by dimension, compared across all of them; of equal ones the first does. multiples: by letter,
    what sizes are kept a multiple of. Groups and ties lose as many elements in each part; no dimension loses its last.
    Raises UserError where the target is not between what the model costs and what the smallest one would.
    """
    bundles = bundled(structure, scores, multiples)

    def sizes(removed: int) -> dict[str, int]:
        return _sizes(structure, bundles[:removed])

    first = _fewest(sizes, len(bundles), cost, target, ", or smaller multiples" if multiples else "")
    gone = defaultdict(set)
    for bundle in bundles[:first]:
        for name, index in bundle.elements:
            gone[name].add(index)
    return {
        name: np.array([index for index in range(dimension.size) if index not in gone[name]])
        for name, dimension in structure.dimensions.items()
    }


def uniform(
    structure: Structure, scores: Mapping[str, np.ndarray], cost: Cost, target: float, whole: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """As `choose` with every dimension shrunk by one factor, the largest that meets the budget ("BERT-all uniform").

    whole: the sizes that the factor is of, those of the unpruned model: of sizes that were rounded before, a few heads
    would never become fewer. Sizes are rounded to the nearest, at least to 1, in each group, and never grow; of every
    dimension the largest scores stay.
    """
    groups = {name: dimension.groups for name, dimension in structure.dimensions.items()}
    each = {name: dimension.size // groups[name] for name, dimension in structure.dimensions.items()}
    first = {name: whole[name] // groups[name] for name in each}
    # A size n becomes n - 1 where the factor falls below (n - 1/2) / first.
    steps = sorted({Fraction(2 * n - 1, 2 * size) for size in first.values() for n in range(2, size + 1)}, reverse=True)

    def left(removed: int) -> dict[str, int]:
        """Of each group."""
        if not removed:
            return each
        factor = steps[removed - 1]  # just below it
        return {
            name: min(each[name], max(1, math.ceil(factor * size + Fraction(1, 2)) - 1)) for name, size in first.items()
        }

    def sizes(removed: int) -> dict[str, int]:
        return {name: n * groups[name] for name, n in left(removed).items()}

    kept = left(_fewest(sizes, len(steps), cost, target))
    found = {}
    for name, dimension in structure.dimensions.items():
        values = np.asarray(scores[name], dtype=np.float64).reshape(dimension.groups, each[name])
        order = np.argsort(values, axis=1, kind="stable")[:, each[name] - kept[name] :]
        found[name] = np.sort((order + each[name] * np.arange(dimension.groups)[:, None]).ravel())
    return found


def _fewest(sizes: Callable[[int], dict[str, int]], steps: int, cost: Cost, target: float, more: str = "") -> int:
    """The fewest of so many steps after which the cost, which falls with every step, is within the target; `more` is
    what else would make it possible.
    """
    whole, least = cost(sizes(0)), cost(sizes(steps))
    if target >= whole:
        own = shown(whole, whole)
        raise UserError(f"a budget of {shown(target, whole)} is not below the model's own {own}: give a smaller one")
    if target < least:
        raise UserError(
            f"a budget of {shown(target, whole)} is below {shown(least, whole)}, the least that is left when all is "
            f"cut that may be: give a larger one, or let more dimensions be cut{more}"
        )
    first, last = 0, steps
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if cost(sizes(middle)) <= target else (middle + 1, last)
    return first


def bundled(structure: Structure, scores: Mapping[str, np.ndarray], multiples: Mapping[str, int]) -> list[Bundle]:
    """All bundles that may go, in the order in which they do."""
    ties: dict[str, list[Dimension]] = defaultdict(list)
    for name, dimension in structure.dimensions.items():
        ties[dimension.tie or f"{name} alone"].append(dimension)
    made = [bundle for together in ties.values() for bundle in _of(together, scores, multiples)]
    return sorted(made, key=lambda bundle: bundle.score)  # stable


def _of(together: list[Dimension], scores: Mapping[str, np.ndarray], multiples: Mapping[str, int]) -> list[Bundle]:
    """Of each group of each dimension the smallest few, the next few, and so on but for the last."""
    dimension = together[0]
    each, multiple = dimension.size // dimension.groups, multiples.get(dimension.letter, 1)
    step = multiple // math.gcd(multiple, dimension.groups)
    if each < step:
        return []
    ordered = []
    for tied in together:
        values = np.asarray(scores[tied.name], dtype=np.float64).reshape(tied.groups, each)
        for group, order in enumerate(np.argsort(values, axis=1, kind="stable")):
            ordered.append([(tied.name, int(group * each + i), float(values[group, i])) for i in order])
    edges = [0, *range(each % step or step, each, step)]
    bundles, least = [], -math.inf
    for start, end in itertools.pairwise(edges):
        elements = [element for row in ordered for element in row[start:end]]
        # At least the one before: a mean is rounded, and must not put the larger elements first.
        least = max(least, float(np.mean([score for *_, score in elements])))
        bundles.append(Bundle(least, tuple((name, index) for name, index, _ in elements)))
    return bundles


def _sizes(structure: Structure, bundles: list[Bundle]) -> dict[str, int]:
    sizes = structure.sizes
    for bundle in bundles:
        for name, _ in bundle.elements:
            sizes[name] -= 1
    return sizes
