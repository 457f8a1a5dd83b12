"""Dead heads, feed-forward units and value dimensions of a trained model score below all that it needs."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bertzoo.heads import MaskedLanguageModel
from bertzoo.models import Bert, Compute
from bertzoo.objectives import Masked
from bertzoo.pruning.choose import NO_MULTIPLES, removal_order
from bertzoo.pruning.costs import betas, parameters
from bertzoo.pruning.objective import HardConcrete, Magnitudes, PruneObjective, named, nested, proximal
from bertzoo.pruning.structure import declare
from bertzoo.pruning.surgery import fold

pytestmark = pytest.mark.slow  # trains a model first

SIZES = {"vocab_size": 61, "hidden_size": 24, "max_positions": 16, "layers": 2, "heads": 4, "feed_forward_size": 20}
MODEL = Bert(**SIZES, dropout=0.0, attention_dropout=0.0, initializer_range=0.15)
STRUCTURE = declare(MODEL, MaskedLanguageModel(sentence=True), ("f", "a", "v"))
BETAS = betas(STRUCTURE, parameters(STRUCTURE))
INNER = Masked(sentence="nsp").build(MODEL, Compute())
PLANTED = {"f": 6, "a": 1, "v": 2}  # of 20, 4 and 6 in every layer


@functools.cache
def dead():
    random = np.random.default_rng(5)
    return {
        name: np.sort(random.choice(dimension.size, PLANTED[dimension.letter], replace=False))
        for name, dimension in STRUCTURE.dimensions.items()
    }


def plant(params):
    """Zero the weights that read the dead elements; weights into them stay."""
    params = dict(named(params))
    for name, indices in dead().items():
        path = f"{name.rpartition('/')[0]}/output/kernel"
        at = (slice(None), indices) if name.endswith("/v") else indices
        params[path] = params[path].at[at].set(0)
    return nested(params)


@functools.cache
def batch():
    random = np.random.default_rng(3)
    ids = random.integers(5, 61, (32, 12))
    hidden = ids.copy()
    hidden[:, [1, 4, 7]] = 4
    made = {"input_ids": hidden, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1}
    made |= {"masked_positions": np.tile([1, 4, 7], (32, 1)), "masked_ids": ids[:, [1, 4, 7]]}
    made |= {"masked_weights": np.ones((32, 3), np.float32), "row_weight": np.ones(32, np.float32)}
    return made | {"sentence_label": random.integers(0, 2, 32)}


def loss(objective, params, frozen, key):
    rows = jax.tree.map(jnp.asarray, batch())
    sums, weights = objective(params, frozen, rows, key)[0], objective.weights(rows)
    return sum(sums[term] / weights[term] for term in weights)


def descend(function, params, optimizer, steps):
    """Return the parameters after `steps` steps on function(params, key)."""

    def step(state, key):
        params, moments = state
        updates, moments = optimizer.update(jax.grad(function)(params, key), moments, params)
        return (optax.apply_updates(params, updates), moments), None

    @jax.jit
    def run(params):
        start = params, optimizer.init(params)
        return jax.lax.scan(step, start, jax.random.split(jax.random.key(1), steps))[0][0]

    return run(params)


@functools.cache
def trained():
    start = nn.unbox(INNER.init(jax.random.key(0)))
    return plant(descend(lambda p, _: loss(INNER, plant(p), None, None), start, optax.adam(3e-3), 600))


@functools.cache
def needed():
    """Return the elements whose removal alone raises the loss by more than 0.005."""
    ones = {name: jnp.ones(size) for name, size in STRUCTURE.sizes.items()}

    @jax.jit
    def at(vectors):
        return loss(INNER, nested(fold(STRUCTURE, named(trained()), vectors)), None, None)

    whole = at(ones)
    assert whole < 0.01
    rises = {
        name: np.array([at(ones | {name: ones[name].at[i].set(0)}) for i in range(size)]) - whole
        for name, size in STRUCTURE.sizes.items()
    }
    for name, indices in dead().items():
        assert np.abs(rises[name][indices]).max() < 1e-6
    return {(name, int(i)) for name, rise in rises.items() for i in np.flatnonzero(rise > 0.005)}


@pytest.mark.parametrize(
    ("gates", "gamma", "optimizer", "steps"),
    [
        (Magnitudes(), 0.01, optax.adam(1e-2), 200),
        (HardConcrete(), 0.01, optax.adam(3e-2), 200),
        (
            Magnitudes(penalised=False),
            0.0,
            optax.chain(optax.sgd(0.1), proximal(lambda _: 0.1, 0.1, BETAS)),
            1500,
        ),
    ],
    ids=["l1", "l0", "proximal"],
)
def test_dead_elements_are_cut_first(gates, gamma, optimizer, steps):
    objective = PruneObjective(INNER, STRUCTURE, BETAS, gamma, gates)
    start = nn.unbox(objective.init(jax.random.key(0)))
    frozen = trained()
    vectors = descend(lambda p, key: loss(objective, p, frozen, key), start, optimizer, steps)
    scores = {name: np.asarray(score) for name, score in objective.scores(vectors).items()}
    order = [element for bundle in removal_order(STRUCTURE, scores, NO_MULTIPLES) for element in bundle.elements]
    alive = needed()
    assert {name for name, _ in alive} == set(STRUCTURE.dimensions)
    before = order[: next(place for place, element in enumerate(order) if element in alive)]
    planted = [(name, int(i)) for name, indices in dead().items() for i in indices]
    assert sum(element in before for element in planted) >= 0.95 * len(planted)
