"""What a pruning run may cut, and whether its budget and its devices allow that: known before anything is trained."""

import math

import jax
import numpy as np

from bertzoo.models import Model
from bertzoo.pruning.settings import Prune
from bertzoo.pruning.shapes import resized
from bertzoo.pruning.structure import Structure, declare
from bertzoo.pruning.target import Target
from bertzoo.runs import any_model, job


def structure_of(recipe: Prune, model: Model) -> Structure:
    """What can be cut of a model under the run's objective; raises ConfigError where it lacks a dimension asked for."""
    return declare(model, any_model.head_of(recipe), recipe.letters)


def budget(recipe: Prune, counted: Target | None = None) -> tuple[float, float]:
    """What the unpruned model costs, and what is to be left; raises UserError where no cut gets there.

    counted: the recipe's target, with a table that is another copy.
    """
    structure = structure_of(recipe, recipe.model)
    recipe.cut.multiples.check(structure)
    cost = (counted or recipe.target).cost(structure)
    whole = cost(structure.sizes)
    target = recipe.target.amount(whole)
    ones = {name: np.ones(size) for name, size in structure.sizes.items()}
    recipe.kept(structure, cost, ones, target, structure.sizes)
    return whole, target


def devices(recipe: Prune) -> jax.sharding.Mesh:
    """The mesh of all devices; raises ConfigError where batches do not divide over them, or a model does not of which
    as little is cut as can be, so that hardly a size is even.
    """
    job.make_mesh(recipe.weighing(recipe.model))
    dimensions, multiples = structure_of(recipe, recipe.model).dimensions, recipe.cut.multiples.given
    steps = {name: math.lcm(one.groups, multiples.get(one.letter, 1)) for name, one in dimensions.items()}
    last = {name: one.size % steps[name] or steps[name] for name, one in dimensions.items()}  # what goes first
    sizes = {name: one.size - last[name] * (one.size > steps[name]) for name, one in dimensions.items()}
    return job.make_mesh(recipe.pretraining(resized(recipe.model, sizes)))
