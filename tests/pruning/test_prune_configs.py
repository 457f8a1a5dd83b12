"""The shipped pruning configs load, document their command, and meet their budgets."""

import numpy as np
import pytest
from tiers import quick

from bertzoo.core import config
from bertzoo.core.kinds import kind_of_files
from bertzoo.models import Electra
from bertzoo.planning.sizes import measure
from bertzoo.pruning.costs import parameters
from bertzoo.pruning.run import budget, structure_of
from bertzoo.pruning.settings import Prune
from bertzoo.pruning.structure import resized
from bertzoo.runs.configs import Pretrain

NAMES = [name for name, path in config.shipped().items() if kind_of_files(path).name == "prune"]
PUBLISHED = [f"prune_{size}m" for size in (99, 88, 77, 66, 55, 43, 33)]


def test_every_published_size_has_a_config():
    assert set(NAMES) == {*PUBLISHED, "prune_albert_e", "demo_prune"}


@pytest.mark.parametrize("name", NAMES)
def test_it_survives_a_round_trip(name):
    recipe = config.load(Prune, [name])
    assert config.from_dict(Prune, config.plain(recipe)) == recipe
    assert not recipe.cut.dimensions or recipe.letters == recipe.cut.dimensions


@pytest.mark.parametrize("name", quick(NAMES, "prune_66m"))
def test_the_budget_is_met_within_one_per_cent(name):
    recipe = config.load(Prune, [name])
    whole, target = budget(recipe)
    structure = structure_of(recipe, recipe.model)
    random = np.random.default_rng(0)
    scores = {name: random.random(size) for name, size in structure.sizes.items()}
    kept = recipe.choose_kept(structure, recipe.target.cost(structure), scores, target, structure.sizes)
    left = parameters(structure)({name: len(indices) for name, indices in kept.items()})
    assert 0.99 * target < left <= target < whole
    if name in PUBLISHED:
        published = config.load(Pretrain, [name.replace("prune", "schubert")])
        assert target == measure(published.model, published.objective).params_with_pooler
        if recipe.letters == ("h",):
            sizes = {name: len(indices) for name, indices in kept.items()}
            assert resized(recipe.model, sizes) == published.model
    if name == "prune_albert_e":
        assert isinstance(recipe.model, Electra)
        assert len(kept["e"]) == config.load(Pretrain, ["albert_e"]).model.embedding_size
