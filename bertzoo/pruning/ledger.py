"""Record a cut (remaining sizes, savings), and check the penalty's weight γ."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.pruning.costs import Cost
from bertzoo.pruning.layout import format_amount, format_sizes
from bertzoo.pruning.structure import Structure

Kept = Mapping[str, np.ndarray]  # by dimension, the sorted indices that stay
LEAST_WEIGHT = 0.1  # mean share of |α| that elements to cut must lose and elements to keep must still have
LEAST_DIFFERENCE = 0.02  # share by which the scores of kept elements must fall less than those of cut ones


def check_gamma(
    gamma: float,
    betas: Mapping[str, float],
    vectors: Mapping[str, np.ndarray],
    fallen: Mapping[str, np.ndarray],
    kept: Kept,
) -> None:
    """Raise ConfigError if γ, the penalty's weight, was too small or too large to tell which elements to cut.

    By dimension: betas: cost of one element; vectors: trained prune vector; fallen: how far each element's score has
    fallen below its initial value; kept: indices of the elements that stay.
    """
    weights = np.concatenate([np.full(len(vector), betas[name]) for name, vector in vectors.items()])
    stays = np.concatenate([np.isin(np.arange(len(vector)), kept[name]) for name, vector in vectors.items()])

    def means(values: Mapping[str, np.ndarray]) -> list[float]:
        """Return two β-weighted means of `values`: over the elements to cut and over the elements to keep."""
        flat = np.concatenate([values[name] for name in vectors])
        return [float(np.average(flat[part], weights=weights[part])) for part in (~stays, stays)]

    left_of_gone, left_of_kept = means({name: np.abs(vector) for name, vector in vectors.items()})
    if left_of_gone > 1 - LEAST_WEIGHT:
        raise ConfigError(
            f"weigh.gamma = {gamma:g} is too small: the elements to cut still have {left_of_gone:.0%} of their "
            "importance on average. Start another run with a larger gamma or more weigh.steps."
        )
    if left_of_kept < LEAST_WEIGHT:
        raise ConfigError(
            f"weigh.gamma = {gamma:g} is too large: the elements to keep have only {left_of_kept:.1%} of their "
            "importance left on average. Start another run with a smaller gamma or fewer weigh.steps."
        )
    fall_of_gone, fall_of_kept = means(fallen)
    if fall_of_kept > (1 - LEAST_DIFFERENCE) * fall_of_gone:
        raise ConfigError(
            f"weigh.gamma = {gamma:g} does not tell elements apart: on average, the scores of elements to keep fell "
            f"by {fall_of_kept:.4g}, and those of elements to cut by {fall_of_gone:.4g}. Start another run with a "
            "smaller gamma."
        )


def cut_record(structure: Structure, cost: Cost, kept: Kept, **more: Any) -> dict[str, Any]:
    """Return the record of a cut: `cost` and `sizes` before and after it, `saved`, and the fields in `more`.

    `saved` is {letter of `structure.LETTERS`: cost saved if only the dimensions of this letter are cut}.
    """
    before, after = structure.sizes, structure.sizes | {name: len(indices) for name, indices in kept.items()}
    saved = {
        letter: cost(before) - cost(before | {name: after[name] for name in names})
        for letter, names in structure.by_letter.items()
    }
    costs = {"before": cost(before), "after": cost(after)}
    return {**more, "cost": costs, "saved": saved, "sizes": {"before": before, "after": after}}


def describe(cut: Mapping[str, Any]) -> list[str]:
    """Return console lines that describe a cut, from its `cut_record`."""
    unit, cost = cut["unit"], cut["cost"]

    def amount(value: float) -> str:
        return format_amount(value, cost["before"])

    lines = [
        f"iteration {cut['iteration']} of {cut['iterations']}: {amount(cost['before'])} -> {amount(cost['after'])} "
        f"{unit} (this iteration may keep {amount(cut['target'])}, the last one {amount(cut['budget'])})"
    ]
    for letter, saved in cut["saved"].items():
        before, after = (format_sizes(cut["sizes"][when], letter) for when in ("before", "after"))
        lines.append(f"  {letter}  {before} -> {after} saves {amount(saved)}")
    return lines
