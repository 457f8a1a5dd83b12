"""Only prune vectors train; at the start the model is unchanged, and dead elements fall first."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from zoo import LAYERS, SIZES, batch_of, pretrained

from bertzoo.heads import MaskedLanguageModel, ReplacedTokens
from bertzoo.models import Bert, Compute, Electra
from bertzoo.objectives import Masked, Replaced
from bertzoo.pruning.costs import betas, parameters
from bertzoo.pruning.objective import HardConcrete, Magnitudes, PruneObjective, named, nested, proximal
from bertzoo.pruning.structure import declare
from bertzoo.train import sharding

BERT = Bert(**SIZES, **LAYERS)
HEAD = MaskedLanguageModel(sentence=True)
STRUCTURE = declare(BERT, HEAD)
LAYER = "encoder/layers_0"
# Planted: no other parameter reads their outputs.
DEAD = {f"{LAYER}/attention/a": [1], f"{LAYER}/attention/v": [0, 4], f"{LAYER}/feed_forward/f": [2, 3, 11, 19]}


def objective(gates, gamma=0.1):
    inner = Masked(sentence="nsp").build(BERT, Compute())
    return PruneObjective(inner, STRUCTURE, betas(STRUCTURE, parameters(STRUCTURE)), gamma, gates)


def weights():
    params = {path: array.copy() for path, array in pretrained(BERT, HEAD).params.items()}
    out = params[f"{LAYER}/attention/output/kernel"]
    out[DEAD[f"{LAYER}/attention/a"]] = 0
    out[:, DEAD[f"{LAYER}/attention/v"]] = 0
    params[f"{LAYER}/feed_forward/output/kernel"][DEAD[f"{LAYER}/feed_forward/f"]] = 0
    return jax.tree.map(jnp.asarray, nested(params))


def loss(of, params, frozen, batch, key=None):
    (sums, metrics), shares = of(params, frozen, batch, key), of.weights(batch)
    return sum(sums[term] / shares[term] for term in shares), metrics


@pytest.mark.parametrize("gates", [Magnitudes(), Magnitudes(penalised=False), HardConcrete()])
def test_at_the_start_outputs_equal_the_models(gates):
    of, frozen, batch = objective(gates), weights(), batch_of()
    start = nn.unbox(of.init(jax.random.key(0)))
    assert {name: leaf.shape for name, leaf in named(start).items()} == {n: (s,) for n, s in STRUCTURE.sizes.items()}
    sums, metrics = jax.jit(of)(start, frozen, batch, None)
    plain, of_plain = jax.jit(of.objective)(frozen, None, batch, None)
    chex.assert_trees_all_close({term: sums[term] for term in plain}, plain, rtol=1e-6)
    cost = metrics["penalty"][0] / metrics["penalty"][1]
    whole = sum(of.betas[name] * size for name, size in STRUCTURE.sizes.items())
    if isinstance(gates, HardConcrete):
        assert 0.9 * whole < cost < whole
    else:
        assert cost == pytest.approx(whole if gates.penalised else 0.0, rel=1e-5)
    left = {f"{letter}_left" for letter in "hfakv"}
    assert set(metrics) == {*of_plain, "penalty", *left}
    assert all(metrics[name][0] / metrics[name][1] == pytest.approx(1, abs=1e-5) for name in left)
    np.testing.assert_allclose(sums["penalty"], of.gamma * metrics["penalty"][0], rtol=1e-6)


def test_dead_elements_have_the_penalty_alone():
    of, frozen, batch = objective(Magnitudes(), gamma=0.2), weights(), batch_of()
    start = nn.unbox(of.init(jax.random.key(0)))
    slope = named(jax.jit(jax.grad(lambda p: loss(of, p, frozen, batch)[0]))(start))
    for name, dead in DEAD.items():
        pull = 0.2 * of.betas[name]
        alone = np.isclose(slope[name], pull, atol=1e-6)
        assert np.flatnonzero(alone).tolist() == dead
    at_weights = jax.jit(jax.grad(lambda w: loss(of, start, w, batch)[0]))(frozen)
    assert all(float(jnp.abs(leaf).max()) == 0 for leaf in jax.tree.leaves(at_weights))


def test_the_proximal_step_takes_dead_elements_to_zero_exactly():
    of, frozen, batch = objective(Magnitudes(penalised=False)), weights(), batch_of()
    unit = {name: 1.0 for name in of.betas}
    # A dead element loses 0.1 in the first step, 0.2 in the second, and so on.
    optimizer = optax.chain(optax.sgd(0.0), proximal(lambda count: 0.01 * (count + 1), 10.0, unit))
    params = nn.unbox(of.init(jax.random.key(0)))
    state = optimizer.init(params)
    gradient = jax.jit(jax.grad(lambda p: loss(of, p, frozen, batch)[0]))
    for step in range(1, 6):
        updates, state = optimizer.update(gradient(params), state, params)
        params = optax.apply_updates(params, updates)
        expected = max(0.0, 1 - 0.1 * step * (step + 1) / 2)
        np.testing.assert_allclose(named(params)["h"], expected, atol=1e-5)
    assert float(jnp.abs(named(params)["h"]).max()) == 0.0


def test_random_gates_depend_on_the_key_alone():
    of, frozen, batch = objective(HardConcrete()), weights(), batch_of()
    start = nn.unbox(of.init(jax.random.key(0)))
    one, same, other = (jax.jit(of)(start, frozen, batch, jax.random.key(k))[0]["mlm"] for k in (1, 1, 2))
    assert one == same != other


@pytest.mark.slow
def test_the_generator_is_not_cut():
    model = Electra(**SIZES, **LAYERS, embedding_size=10, dropout=0.0, attention_dropout=0.0)
    inner = Replaced(generator_width=0.5).build(model, Compute())
    structure = declare(model, ReplacedTokens(), ("f",))
    of = PruneObjective(inner, structure, betas(structure, parameters(structure)), 0.1, Magnitudes())
    frozen, batch = nn.unbox(inner.init(jax.random.key(0))), batch_of()
    start, key = nn.unbox(of.init(jax.random.key(0))), jax.random.key(3)
    sums, _ = jax.jit(of)(start, frozen, batch, key)
    plain, _ = jax.jit(inner)(frozen, None, batch, jax.random.split(key)[0])
    assert set(sums) == {*plain, "penalty"}
    chex.assert_trees_all_close({term: sums[term] for term in plain}, plain, rtol=1e-5)


def test_vectors_are_whole_on_every_device():
    boxed = objective(Magnitudes()).init(jax.random.key(0))
    mesh = sharding.make_mesh(sharding.Mesh())
    places = sharding.shardings(boxed, mesh)
    assert all(place.is_fully_replicated for place in jax.tree.leaves(places))
