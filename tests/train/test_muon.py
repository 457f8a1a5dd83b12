"""Muon equals Newton-Schulz in numpy for every shape of kernel, is split and saved like the others, and resumes."""

import dataclasses
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import unflatten_dict

from bertzoo.core import config
from bertzoo.nn.parameter import Matrix
from bertzoo.runs.configs import Pretrain
from bertzoo.runs.experiments import build_setups
from bertzoo.train import optim
from bertzoo.train.optim import AdamW, Muon, Schedule
from bertzoo.train.state import boxed_shapes, matrices_of, named

# Nothing at its default, so that an option that is ignored shows.
FIELDS = {"learning_rate": 0.1, "weight_decay": 0.03, "clip_norm": 0.0, "schedule": Schedule(kind="constant")}
ADAM = {**FIELDS, "beta1": 0.8, "beta2": 0.97, "epsilon": 1e-3}
CONFIG = Muon(**ADAM, momentum=0.9, iterations=4, update_rms=0.3)
SHAPES = {
    "encoder/plain/kernel": (4, 6),
    "encoder/tall/kernel": (7, 3),
    "encoder/grouped/kernel": (1, 3, 8),
    "encoder/heads/kernel": (6, 2, 5),
    "encoder/joined/kernel": (2, 5, 6),
    "encoder/stacked/kernel": (3, 4, 6),
    "encoder/depthwise/kernel": (3, 4),
    "encoder/plain/bias": (6,),
    "head/kernel": (4, 6),
}
MATRICES = {
    "encoder/plain/kernel": Matrix(1, 1),
    "encoder/tall/kernel": Matrix(1, 1),
    "encoder/grouped/kernel": Matrix(2, 1, groups=2),
    "encoder/heads/kernel": Matrix(1, 2),
    "encoder/joined/kernel": Matrix(2, 1),
    "encoder/stacked/kernel": Matrix(1, 1),
    "head/kernel": Matrix(1, 1),
}


def draw(seed: int) -> dict[str, Any]:
    generators = {path: np.random.default_rng([seed, len(path)]) for path in SHAPES}
    arrays = {path: jnp.asarray(generators[path].normal(size=shape), jnp.float32) for path, shape in SHAPES.items()}
    return unflatten_dict(arrays, sep="/")


def newton_schulz(x: np.ndarray, config: Muon) -> np.ndarray:
    """The quintic iteration of Jordan et al. on one matrix, scaled as by Liu et al."""
    a, b, c = 3.4445, -4.7750, 2.0315
    y = x / np.linalg.norm(x)
    for _ in range(config.iterations):
        y = a * y + b * (y @ y.T) @ y + c * (y @ y.T) @ (y @ y.T) @ y
    return config.update_rms * np.sqrt(max(x.shape)) * y


def orthogonal(name: str, x: np.ndarray, config: Muon) -> np.ndarray:
    match name.split("/")[1]:
        case "grouped":
            return np.concatenate([newton_schulz(x[0, :, :4], config), newton_schulz(x[0, :, 4:], config)], 1)[None]
        case "heads":
            return newton_schulz(x.reshape(6, 10), config).reshape(x.shape)
        case "joined":
            return newton_schulz(x.reshape(10, 6), config).reshape(x.shape)
        case "stacked":
            return np.stack([newton_schulz(layer, config) for layer in x])
        case _:
            return newton_schulz(x, config)


@pytest.mark.parametrize("nesterov", [True, False])
def test_matrices_equal_numpy_and_the_rest_adamw(nesterov: bool):
    config = dataclasses.replace(CONFIG, nesterov=nesterov)
    optimizer, adamw = optim.build(config, 10, matrices=MATRICES), optim.build(AdamW(**ADAM), 10)
    ours = theirs = draw(0)
    state, adam_state = optimizer.init(ours), adamw.init(theirs)
    muons = {name for name in MATRICES if name.startswith("encoder/")}
    expected = {name: np.asarray(named(ours)[name], np.float64) for name in muons}
    momentum = {name: np.zeros_like(x) for name, x in expected.items()}
    update, plain = jax.jit(optimizer.update), jax.jit(adamw.update)
    for step in range(3):
        gradient = draw(step + 1)
        changes, state = update(gradient, state, ours)
        ours = optax.apply_updates(ours, changes)
        changes, adam_state = plain(gradient, adam_state, theirs)
        theirs = optax.apply_updates(theirs, changes)
        for name in muons:
            g = np.asarray(named(gradient)[name], np.float64)
            momentum[name] = 0.9 * momentum[name] + 0.1 * g
            direction = 0.9 * momentum[name] + 0.1 * g if nesterov else momentum[name]
            expected[name] -= 0.1 * (orthogonal(name, direction, config) + 0.03 * expected[name])
    for name, value in named(ours).items():
        np.testing.assert_allclose(
            value, expected[name] if name in muons else named(theirs)[name], rtol=1e-4, atol=1e-5, err_msg=name
        )


def test_the_state_has_one_moment_for_a_matrix_and_carries_it():
    optimizer, params = optim.build(CONFIG, 10, matrices=MATRICES), draw(0)
    state = optimizer.init(params)
    _, old = jax.jit(optimizer.update)(draw(1), state, params)
    for name in ("trace", "mu", "nu"):
        moments = named(optax.tree_utils.tree_get(old, name))
        muons = {path for path in MATRICES if path.startswith("encoder/")}
        assert moments.keys() == (muons if name == "trace" else SHAPES.keys() - muons)
        assert all(moments[path].shape == SHAPES[path] for path in moments)
        carried = named(optax.tree_utils.tree_get(optim.carry(old, state, "moments"), name))
        chex.assert_trees_all_equal(carried, moments)


def test_a_frozen_matrix_stays_and_has_no_moment():
    def rate(name: str) -> float:
        return {"encoder/grouped/kernel": 0.0, "encoder/heads/kernel": 0.5}.get(name, 1.0)

    params, gradient = draw(0), draw(1)
    whole, part = (optim.build(CONFIG, 10, matrices=MATRICES, rates=rates) for rates in (None, rate))
    expected, _ = jax.jit(whole.update)(gradient, whole.init(params), params)
    changes, state = jax.jit(part.update)(gradient, part.init(params), params)
    for name, change in named(changes).items():
        np.testing.assert_allclose(change, rate(name) * named(expected)[name], rtol=1e-5, atol=1e-6, err_msg=name)
    moments = named(optax.tree_utils.tree_get(state, "trace"))
    assert "encoder/heads/kernel" in moments and "encoder/grouped/kernel" not in moments


def test_a_model_names_its_groups_and_its_heads(tiny_config: str):
    recipe = config.load(
        Pretrain,
        [tiny_config],
        [("optimizer.kind", "muon"), ("optimizer.learning_rate", "1"), ("model.query_groups", "4")],
    )
    setup = build_setups(recipe)[0]
    matrices = matrices_of(setup.objective)
    layer = "encoder/layers_0/"
    assert matrices[layer + "attention/query/kernel"] == Matrix(2, 1, groups=4)
    assert matrices[layer + "feed_forward/output/kernel"] == Matrix(2, 1, groups=2)
    state = jax.eval_shape(setup.transformation(10).init, nn.unbox(boxed_shapes(setup.objective)))
    traced = named(optax.tree_utils.tree_get(state, "trace"))
    kernels = ("attention/query", "attention/key", "attention/value", "attention/output")
    kernels += ("feed_forward/intermediate", "feed_forward/output")
    assert traced.keys() == {f"{layer}{name}/kernel" for name in kernels}
