"""What a cut leaves of every dimension and what it saves, for a person and for the record."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.pruning.costs import Cost
from bertzoo.pruning.structure import Structure
from bertzoo.runs.prune_layout import format_amount as shown

Kept = Mapping[str, np.ndarray]
Weights = Mapping[str, np.ndarray]  # by dimension |α|·β
LEAST = 0.1  # what is left of vectors, on average, once nothing is left of them
ALIKE = 0.02  # how much less what stays has fallen than what goes, as a share of that, where both fell as one


def check_gamma(
    gamma: float,
    betas: Mapping[str, float],
    vectors: Mapping[str, np.ndarray],
    fallen: Mapping[str, np.ndarray],
    kept: Kept,
) -> None:
    """Raise ConfigError where γ was too small or too large for vectors to say what may go; fallen: by how much the
    score of each element is below the one that all began with.
    """
    whole = {name: np.full(len(vector), betas[name]) for name, vector in vectors.items()}
    weights = {name: betas[name] * np.abs(vector) for name, vector in vectors.items()}
    of_gone = removed(weights, kept) / removed(whole, kept)
    stays = {name: np.setdiff1d(np.arange(len(vector)), kept[name]) for name, vector in vectors.items()}
    of_kept = removed(weights, stays) / removed(whole, stays)
    if of_gone > 1 - LEAST:
        raise ConfigError(
            f"weigh.gamma = {gamma} prunes nothing: what would go has kept {of_gone:.0%} of its weight on average; "
            "begin another run with a larger one, or with more steps of weighing"
        )
    if of_kept < LEAST:
        raise ConfigError(
            f"weigh.gamma = {gamma} prunes everything: what would stay has kept {of_kept:.0%} of its weight on "
            "average; begin another run with a smaller one, or with fewer steps of weighing"
        )
    falls = {name: betas[name] * fall for name, fall in fallen.items()}
    of_gone, of_kept = removed(falls, kept) / removed(whole, kept), removed(falls, stays) / removed(whole, stays)
    if of_kept > (1 - ALIKE) * of_gone:
        raise ConfigError(
            f"weigh.gamma = {gamma} prunes everything alike: what would stay has fallen by {of_kept:.4g} on average, "
            f"and what would go by {of_gone:.4g}; begin another run with a smaller one"
        )


def removed(weights: Weights, kept: Kept) -> float:
    """The sum of the weights of all that goes."""
    return float(sum(weight.sum() - weight[kept[name]].sum() for name, weight in weights.items()))


def price(cost: Cost, weights: Weights, kept: Kept, without: Kept) -> dict[str, float]:
    """What multiples cost: what is left and the share of the weight that goes, with them and without."""
    whole = float(sum(weight.sum() for weight in weights.values()))
    return {
        "after": cost(_sizes(kept)),
        "after_without": cost(_sizes(without)),
        "weight": removed(weights, kept) / whole,
        "weight_without": removed(weights, without) / whole,
    }


def stays(structure: Structure, kept: Kept) -> dict[str, float]:
    """By letter as h_stays, the share that a cut leaves of what its dimensions are now."""
    found = {}
    for letter in dict.fromkeys(dimension.letter for dimension in structure.dimensions.values()):
        names = [name for name, dimension in structure.dimensions.items() if dimension.letter == letter]
        before, after = (sum(each[name] for name in names) for each in (structure.sizes, _sizes(kept)))
        found[f"{letter}_stays"] = after / before
    return found


def entry(structure: Structure, cost: Cost, kept: Kept, **more: Any) -> dict[str, Any]:
    """What a cut does, for the record; saved: by letter, what a cut of its dimensions alone would."""
    before, after = structure.sizes, structure.sizes | _sizes(kept)
    saved = {}
    for letter in dict.fromkeys(dimension.letter for dimension in structure.dimensions.values()):
        own = {name: after[name] for name, dimension in structure.dimensions.items() if dimension.letter == letter}
        saved[letter] = cost(before) - cost(before | own)
    costs = {"before": cost(before), "after": cost(after)}
    return {**more, "cost": costs, "saved": saved, "sizes": {"before": before, "after": after}}


def lines(cut: Mapping[str, Any]) -> list[str]:
    """A record for a person."""
    unit, cost = cut["unit"], cut["cost"]

    def of(amount: float) -> str:
        return shown(amount, cost["before"])

    said = [
        f"iteration {cut['iteration']} of {cut['iterations']}: {of(cost['before'])} -> {of(cost['after'])} {unit}, "
        f"of at most {of(cut['target'])} now and {of(cut['budget'])} in the end"
    ]
    for letter, saved in cut["saved"].items():
        before, after = (_range(cut["sizes"][when], letter) for when in ("before", "after"))
        said.append(f"  {letter}  {before} -> {after}, which alone saves {of(saved)}")
    if found := cut.get("multiples"):
        said.append(
            f"  the multiples leave {of(found['after'])} {unit} where {of(found['after_without'])} would do, and cut "
            f"{found['weight']:.1%} of the weight instead of {found['weight_without']:.1%}"
        )
    return said


def _range(sizes: Mapping[str, int], letter: str) -> str:
    found = [size for name, size in sizes.items() if name.rpartition("/")[2] == letter]
    return str(found[0]) if len(set(found)) == 1 else f"{min(found)} to {max(found)}"


def _sizes(kept: Kept) -> dict[str, int]:
    return {name: len(indices) for name, indices in kept.items()}
