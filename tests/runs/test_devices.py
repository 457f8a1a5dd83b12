"""Shipped models train the same on one device and on eight, with rows or parameters split, without and with dropout."""

import functools
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from arrays import assert_equal_parameters
from zoo import mesh_of

from bertzoo.models import Bert, Compute, ConvBert, Electra, MobileBert, ModernBert, SqueezeBert
from bertzoo.objectives import Masked, Replaced
from bertzoo.planning.compiled import find_collectives
from bertzoo.train import experiment, optim, sharding, state, step
from bertzoo.train.experiment import Experiment, StageSetup

SMALL = {"vocab_size": 64, "hidden_size": 32, "layers": 1, "heads": 4, "feed_forward_size": 64, "max_positions": 16}
MODELS = {
    "bert": functools.partial(Bert, **SMALL),
    "squeezebert": functools.partial(SqueezeBert, **SMALL),  # four groups, two to a device under tensor=2
    "mobilebert": functools.partial(MobileBert, **SMALL, embedding_size=16, bottleneck_size=16, feed_forwards=2),
    "convbert": functools.partial(ConvBert, **SMALL, kernel_size=3),
    "modernbert": functools.partial(ModernBert, **SMALL | {"layers": 2}, window=4, global_every=2),
    "replaced": functools.partial(Electra, **SMALL, embedding_size=16),
}
OBJECTIVES = {"convbert": Masked(), "replaced": Replaced(generator_width=0.5)}
ROWS, LENGTH, MASKED, STEPS = 16, 12, 3, 4
FEW = 8, 8  # rows and length of batches with fewer tokens to a part of the data than a parameter has rows
# Devices along data, fsdp and tensor, and the dropout.
MESHES = ((8, 1, 1), 0.0), ((4, 2, 1), 0.1), ((2, 2, 2), 0.1), ((1, 8, 1), 0.0)
batch_of = functools.partial(zoo.batch_of, masked=MASKED, vocabulary=64, spare=1)
# m/(√v + ε) makes a large step of a gradient that is all rounding, unless ε is as large as that.
LAMB, MUON = optim.Lamb(learning_rate=0.01, epsilon=1e-3), optim.Muon(learning_rate=0.01, epsilon=1e-3)


@functools.cache
def train(
    model: str,
    sizes: tuple[int, int, int],
    dropout: float,
    batch: tuple[int, int] = (ROWS, LENGTH),
    settings: optim.Optimizer = LAMB,
    compute: Compute | None = None,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The loss of every step, and the parameters after the last."""
    mesh = mesh_of(sizes)
    made = MODELS[model](dropout=dropout, attention_dropout=dropout, initializer_range=0.1)
    objective = OBJECTIVES.get(model, Masked(sentence="sop")).build(made, compute or Compute())
    optimizer = StageSetup(objective=objective, optimizer=settings).transformation(STEPS)
    now = state.fresh(objective, optimizer, mesh, seed=3)
    places = state.shardings_of(state.abstract(objective, optimizer, mesh))
    train_step, losses = step.make_train_step(objective, optimizer, shardings=places), []
    for number in range(STEPS):
        now, report = train_step(now, None, step.put_batch(batch_of(*batch, seed=number), mesh))
        losses.append(sum(float(total) / float(weight) for total, weight in report["terms"].values()))
    return np.array(losses), {name: np.asarray(leaf) for name, leaf in state.named(now.params).items()}


def compare(
    model: str,
    sizes: tuple[int, int, int],
    dropout: float,
    batch: tuple[int, int] = (ROWS, LENGTH),
    settings: optim.Optimizer = LAMB,
    tolerance: float = 1e-5,
) -> None:
    losses, params = train(model, sizes, dropout, batch, settings)
    expected_losses, expected = train(model, (1, 1, 1), dropout, batch, settings)
    np.testing.assert_allclose(losses, expected_losses, rtol=tolerance / 10)
    assert_equal_parameters(params, expected, tolerance)


@pytest.mark.slow
def test_eight_devices_equal_one_under_muon():
    """Newton-Schulz enlarges the rounding of the smallest singular values."""
    compare("squeezebert", (2, 2, 2), 0.0, settings=MUON, tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 1e-3)])
def test_a_seed_gives_the_same_bits_twice_and_equal_losses_on_more_devices(dtype: str, tolerance: float):
    """With more devices, sums are taken in another order."""
    compute = Compute(dtype=dtype)
    losses, params = train("squeezebert", (1, 1, 1), 0.1, compute=compute)
    again, same = train.__wrapped__("squeezebert", (1, 1, 1), 0.1, compute=compute)
    np.testing.assert_array_equal(losses, again)
    chex.assert_trees_all_equal(params, same)
    for devices in (2, 4):
        others, _ = train("squeezebert", (devices, 1, 1), 0.1, compute=compute)
        np.testing.assert_allclose(others, losses, rtol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "sizes"), [("squeezebert", (2, 2, 2)), ("convbert", (1, 1, 1))])
def test_the_attention_kernel_trains_like_the_plain_path(model, sizes, monkeypatch):
    """It drops the same elements."""
    expected, parameters = train(model, sizes, 0.1)
    monkeypatch.setattr(sharding, "attention_kernel", functools.partial(sharding.attention_kernel, interpret=True))
    losses, params = train.__wrapped__(model, sizes, 0.1)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert_equal_parameters(params, parameters, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1, 8, 1), (4, 2, 1)])
def test_a_step_gathers_every_split_parameter_once(sizes):
    """Left to XLA, it gathers 80,896 bytes instead of 41,728 on eight devices, and transposes activations."""
    mesh = mesh_of(sizes)
    objective = Masked(sentence="sop").build(MODELS["bert"](dropout=0.0, attention_dropout=0.0), Compute())
    optimizer = StageSetup(objective=objective, optimizer=LAMB).transformation(STEPS)
    shapes = state.abstract(objective, optimizer, mesh)
    train_step: Any = step.make_train_step(objective, optimizer, shardings=state.shardings_of(shapes))
    program = train_step.lower(shapes, None, step.put_batch(batch_of(ROWS, LENGTH), mesh)).compile()
    collectives = find_collectives(program.as_text(), mesh.size)
    assert {one.kind for one in collectives} == {"all-reduce", "all-gather"}
    (gather,) = [one for one in collectives if one.kind == "all-gather"]
    split = [leaf for leaf in jax.tree.leaves(shapes.params) if "fsdp" in leaf.sharding.spec]
    assert gather.group == mesh.shape["fsdp"] and gather.size == sum(4 * leaf.size for leaf in split) > 0


def evaluated(model: str, sizes: tuple[int, int, int]) -> dict[str, float]:
    """Evaluate fresh parameters on few tokens."""
    mesh = mesh_of(sizes)
    made = MODELS[model](initializer_range=0.1)
    objective = OBJECTIVES.get(model, Masked(sentence="sop")).build(made, Compute())
    params = state.fresh(objective, optim.build(optim.AdamW(learning_rate=0.01), 1), mesh, 3).params
    return step.evaluate(step.make_eval_step(objective), params, None, [batch_of(*FEW)], mesh)


@pytest.mark.slow
def test_few_tokens_evaluate_the_same_on_any_devices():
    """Without gradients XLA keeps their order, and decides what to gather."""
    found, expected = evaluated("squeezebert", (2, 2, 2)), evaluated("squeezebert", (1, 1, 1))
    assert found.keys() == expected.keys() and expected["loss"] > 1
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-6), name


class Scaled:
    """A factor is trained for every output of frozen weights, as prune vectors are."""

    def __init__(self, inner):
        self.inner, self.weights = inner, inner.weights

    def init(self, key):
        shapes = jax.eval_shape(lambda: nn.unbox(self.inner.init(key)))
        return jax.tree.map(lambda leaf: nn.Partitioned(jnp.ones(leaf.shape[-1:]), names=(None,)), shapes)

    def __call__(self, params, frozen, batch, key):
        return self.inner(jax.tree.map(jnp.multiply, frozen, params), None, batch, key)


def scaled(sizes: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """The factors after one step of a job on few tokens."""
    mesh = mesh_of(sizes)
    made = MODELS["squeezebert"](dropout=0.0, attention_dropout=0.0, initializer_range=0.1)
    inner, optimizer = Masked(sentence="sop").build(made, Compute()), optim.AdamW(learning_rate=0.01, epsilon=1e-3)
    frozen = state.fresh(inner, optim.build(optimizer, 1), mesh, seed=3).params
    built = Experiment(
        setups=[StageSetup(objective=Scaled(inner), optimizer=optimizer)],
        stages=[experiment.Stage(steps=1, batch_size=FEW[0], max_length=FEW[1], max_predictions=MASKED)],
        mesh=mesh,
        frozen=state.boxed_shapes(inner),
    )
    now = state.fresh(Scaled(inner), built.transformation(0), mesh, seed=3)
    now, _ = built.step(0)(now, frozen, step.put_batch(batch_of(*FEW), mesh))
    return {name: np.asarray(leaf) - 1 for name, leaf in state.named(now.params).items()}


@pytest.mark.slow
def test_nor_are_they_in_gradients_through_frozen_weights():
    found, expected = scaled((2, 2, 2)), scaled((1, 1, 1))
    assert max(np.abs(value).max() for value in expected.values()) > 1e-3
    chex.assert_trees_all_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "dropout", "batch"),
    [
        *((sizes, dropout, (ROWS, LENGTH)) for sizes, dropout in MESHES),
        *((sizes, 0.0, FEW) for sizes in ((2, 2, 2), (4, 2, 1), (1, 4, 2), (4, 1, 2))),
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_every_mesh_equals_one_device(model, sizes, dropout, batch):
    compare(model, sizes, dropout, batch)
