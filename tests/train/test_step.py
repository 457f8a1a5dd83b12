"""The step: accumulation changes only rounding, reports flag non-finite numbers, evaluation weighs rows equally."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from messages import mentioning

from bertzoo.train import optim
from bertzoo.train import state as states
from bertzoo.train.step import evaluate, make_eval_step, make_train_step, put_batch

SGD_LIKE = optim.build(optim.AdamW(learning_rate=0.02, epsilon=1.0), 10)  # a large epsilon: updates show the gradient


def unequal_batch():
    """Rows that count are not spread evenly: microbatches of rows 0, 4, … have 4, 1, 0 and 2 of them."""
    batch = toy.batch(0, 0)
    batch["weight"] = np.zeros(16, np.float32)
    batch["weight"][[0, 4, 8, 12, 5, 7, 3]] = 1
    return batch


def one_step(objective, accumulate: int):
    mesh = toy.mesh()
    state = states.fresh(objective, SGD_LIKE, mesh, seed=1)
    step = make_train_step(objective, SGD_LIKE, accumulate=accumulate)
    state, report = step(state, None, put_batch(unequal_batch(), mesh))
    return toy.copy(state), jax.device_get(report)


@pytest.fixture(scope="module")
def whole():
    return one_step(toy.Toy(dropout=0.0), 1)


@pytest.mark.parametrize("accumulate", [2, 4])
def test_accumulation_equals_the_whole_batch(whole, accumulate: int):
    state, report = one_step(toy.Toy(dropout=0.0), accumulate)
    chex.assert_trees_all_close((state, report), whole, rtol=1e-5, atol=1e-6)


def test_the_gradient_belongs_to_sums_over_weights(whole):
    _, report = whole
    objective, batch = toy.Toy(dropout=0.0), unequal_batch()
    start = toy.copy(states.fresh(objective, SGD_LIKE, toy.mesh(), seed=1).params)

    def loss(params):
        y: Any = objective.model.apply({"params": params}, batch["x"], False)
        fit = jnp.sum(jnp.mean((y - batch["y"]) ** 2, -1) * batch["weight"]) / batch["weight"].sum()
        return fit + 0.1 * jnp.mean(y**2)

    value, grads = jax.value_and_grad(loss)(start)
    total = sum(float(s) / float(w) for s, w in report["terms"].values())
    assert total == pytest.approx(float(value), rel=1e-5)
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in jax.tree.leaves(grads)))
    assert float(report["gradient_norm"]) == pytest.approx(float(norm), rel=1e-5)
    assert float(report["metrics"]["close_accuracy"][1]) == 7


def test_microbatches_and_steps_have_different_dropout():
    objective, mesh = toy.Toy(dropout=0.5), toy.mesh()
    state = states.fresh(objective, SGD_LIKE, mesh, seed=1)
    batch = {name: np.repeat(value[:1], 16, axis=0) for name, value in unequal_batch().items()}
    step = make_train_step(objective, SGD_LIKE, accumulate=16)
    again = dataclasses.replace(jax.tree.map(jnp.copy, state), step=jnp.int32(1))
    other = dataclasses.replace(jax.tree.map(jnp.copy, state), key=state.key + 1)
    fits = [float(step(s, None, put_batch(batch, mesh))[1]["terms"]["fit"][0]) for s in (state, again, other)]
    assert len(set(fits)) == 3
    row = {name: value[:1] for name, value in batch.items()}
    first = make_train_step(objective, SGD_LIKE)(states.fresh(objective, SGD_LIKE, mesh, seed=1), None, row)
    assert fits[0] != pytest.approx(16 * float(first[1]["terms"]["fit"][0]), rel=1e-3)
    single = make_eval_step(objective)(
        states.fresh(objective, SGD_LIKE, mesh, seed=1).params, None, put_batch(batch, mesh)
    )
    assert fits[0] != pytest.approx(float(single["terms"]["fit"][0]), rel=1e-3)


@pytest.mark.parametrize("where", ["x", "params"])
def test_numbers_that_are_not_finite_are_flagged(where: str):
    objective, mesh, batch = toy.Toy(), toy.mesh(), toy.batch(0, 0)
    state = states.fresh(objective, SGD_LIKE, mesh, seed=1)
    if where == "x":
        batch["x"][3, 3] = np.inf
    else:
        params = {**state.params, "output": jax.tree.map(lambda x: x * jnp.nan, state.params["output"])}
        state = dataclasses.replace(state, params=params)
    _, report = make_train_step(objective, SGD_LIKE)(state, None, put_batch(batch, mesh))
    assert not bool(report["finite"])


def test_an_update_that_is_not_finite_is_flagged():
    optimizer = optax.chain(SGD_LIKE, optax.scale(float("inf")))
    state = states.fresh(toy.Toy(), optimizer, toy.mesh(), seed=1)
    _, report = make_train_step(toy.Toy(), optimizer)(state, None, put_batch(toy.batch(0, 0), toy.mesh()))
    assert np.isfinite(report["gradient_norm"]) and not bool(report["finite"])


def test_terms_without_weights_raise():
    class Careless(toy.Toy):
        def weights(self, batch):
            return {"fit": super().weights(batch)["fit"]}

    state = states.fresh(Careless(), SGD_LIKE, toy.mesh(), seed=1)
    with pytest.raises(ValueError, match=mentioning("['fit', 'size']", "['fit']")):
        make_train_step(Careless(), SGD_LIKE)(state, None, put_batch(toy.batch(0, 0), toy.mesh()))


def test_evaluation_does_not_depend_on_how_rows_are_batched():
    objective, mesh = toy.Toy(dropout=0.5), toy.mesh()
    params = states.fresh(objective, SGD_LIKE, mesh, seed=1).params
    whole = unequal_batch()
    parts = [{name: value[:4] for name, value in whole.items()}, {name: value[4:] for name, value in whole.items()}]
    step = make_eval_step(objective)
    means = evaluate(step, params, None, parts, mesh)
    assert means.keys() == {"loss", "fit_loss", "size_loss", "close_accuracy"}
    assert means == pytest.approx(evaluate(step, params, None, [whole], mesh), rel=1e-5)
    assert means["loss"] == pytest.approx(means["fit_loss"] + means["size_loss"])
