"""Check before a pruning run that its dimensions can be cut, its budget can be met, and its devices can be used."""

import math

import jax
import numpy as np

from bertzoo.models import Model
from bertzoo.pruning.settings import Prune
from bertzoo.pruning.shapes import resized
from bertzoo.pruning.structure import Structure, declare
from bertzoo.pruning.target import Target
from bertzoo.runs import any_model
from bertzoo.runs.experiments import build_experiment


def structure_of(recipe: Prune, model: Model) -> Structure:
    """Return a model's structure with the dimensions that the run cuts.

    Raises ConfigError if the model lacks one of these dimensions.
    """
    return declare(model, any_model.head_of(recipe), recipe.letters)


def budget(recipe: Prune, target: Target | None = None) -> tuple[float, float]:
    """Return (cost of the unpruned model, budget), both in the target's unit.

    target: computes costs instead of recipe.target; a resumed run passes the target with its copy of the latency table.

    Raises UserError if no cut meets the budget.
    """
    structure = structure_of(recipe, recipe.model)
    recipe.cut.multiples.check(structure)
    cost = (target or recipe.target).cost(structure)
    whole = cost(structure.sizes)
    amount = recipe.target.amount(whole)
    ones = {name: np.ones(size) for name, size in structure.sizes.items()}
    recipe.choose_kept(structure, cost, ones, amount, structure.sizes)
    return whole, amount


def check_devices(recipe: Prune, mesh: jax.sharding.Mesh) -> None:
    """Raise ConfigError if batches or pruned models do not divide over the devices of `mesh`.

    The sizes of the pruned models are not known yet. The check therefore uses every dimension's size after the smallest
    possible cut, such as 767 for 768. The check is strict, because few numbers of devices divide such sizes.
    """
    build_experiment(recipe.scoring_recipe(recipe.model), mesh)
    dimensions, multiples = structure_of(recipe, recipe.model).dimensions, recipe.cut.multiples.above_one
    steps = {name: math.lcm(one.groups, multiples.get(one.letter, 1)) for name, one in dimensions.items()}
    last = {name: one.size % steps[name] or steps[name] for name, one in dimensions.items()}  # elements that are cut
    sizes = {name: one.size - last[name] * (one.size > steps[name]) for name, one in dimensions.items()}
    build_experiment(recipe.tuning_recipe(resized(recipe.model, sizes)), mesh)
