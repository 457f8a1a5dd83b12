"""Penalties against numpy, the ℓ0 gates against samples, and the check of the penalty's weight."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import mentioning

from bertzoo.core.errors import ConfigError
from bertzoo.pruning.objective import HardConcrete, l1, soft_threshold
from bertzoo.pruning.run import check_gamma

VECTORS = {"h": np.array([1.0, -0.5, 0.0, 2.0], np.float32), "x/f": np.array([0.02, -0.02, 3.0], np.float32)}
BETAS = {"h": 0.73, "x/f": 0.25}


def test_l1():
    assert l1(VECTORS, BETAS) == pytest.approx(0.73 * 3.5 + 0.25 * 3.04)
    slope = jax.grad(l1)({name: jnp.asarray(v) for name, v in VECTORS.items()}, BETAS)
    np.testing.assert_allclose(np.asarray(slope["h"])[[0, 1, 3]], [0.73, -0.73, 0.73])


def test_the_soft_threshold_minimises_its_objective():
    shrunk = soft_threshold(VECTORS, BETAS, 0.1)
    for name, vector in VECTORS.items():
        # prox(α) = argmin_z ½(z − α)² + step·β·|z|, found on a grid
        grid = np.linspace(-4, 4, 80_001)
        value = 0.5 * (grid[:, None] - vector) ** 2 + 0.1 * BETAS[name] * np.abs(grid)[:, None]
        np.testing.assert_allclose(shrunk[name], grid[value.argmin(0)], atol=2e-4)
    assert (shrunk["x/f"][:2] == 0).all() and shrunk["h"][2] == 0


def test_the_hard_concrete_penalty_is_the_probability_of_an_open_gate():
    gates, logits = HardConcrete(), jnp.array([-4.0, -1.0, 0.0, 2.0])
    drawn = np.asarray(gates.vector(jnp.broadcast_to(logits, (40_000, 4)), jax.random.key(0)))
    assert drawn.min() == 0.0 and drawn.max() == 1.0
    for index in range(4):
        chance = float(gates.penalty({"h": logits[index : index + 1]}, {"h": 1.0}))
        assert chance == pytest.approx((drawn[:, index] > 0).mean(), abs=0.01)
    weighed = gates.penalty({"h": logits, "f": logits}, {"h": 2.0, "f": 0.5})
    assert weighed == pytest.approx(2.5 * float(gates.penalty({"h": logits}, {"h": 1.0})), rel=1e-6)


def test_hard_concrete_samples_follow_the_formula():
    gates, logits = HardConcrete(temperature=0.5, low=-0.2, high=1.3), np.linspace(-3, 3, 50_000)
    u = np.random.default_rng(0).uniform(size=logits.size)
    s = 1 / (1 + np.exp(-(np.log(u / (1 - u)) + logits) / 0.5))
    theirs = np.clip(s * 1.5 - 0.2, 0, 1)
    ours = np.asarray(gates.vector(jnp.asarray(logits, jnp.float32), jax.random.key(1)))
    for part in np.split(np.arange(logits.size), 5):
        assert ours[part].mean() == pytest.approx(theirs[part].mean(), abs=0.02)
        assert (ours[part] == 0).mean() == pytest.approx((theirs[part] == 0).mean(), abs=0.02)


def test_hard_concrete_gates_once_trained():
    logits = np.array([-10.0, -1.0, 0.0, 1.0, 10.0], np.float32)
    expected = np.clip(1 / (1 + np.exp(-logits)) * 1.2 - 0.1, 0, 1)
    np.testing.assert_allclose(HardConcrete().vector(jnp.asarray(logits), None), expected, rtol=1e-6)
    assert HardConcrete().vector(jnp.asarray(logits), None)[0] == 0.0
    slope = jax.grad(lambda x: HardConcrete().penalty({"h": x}, {"h": 1.0}))(jnp.asarray(logits))
    assert (np.asarray(slope) > 0).all()


@pytest.mark.parametrize(
    ("left", "fallen", "words"),
    [
        ([0.2, 0.3, 0.8], [0.8, 0.7, 0.2], ()),
        ([0.9, 0.95, 0.99], [0.1, 0.05, 0.01], ("too small", "92%")),
        ([0.0, 0.0, 0.05], [1.0, 1.0, 0.95], ("too large", "5.0%")),
        ([0.2, 0.3, 0.8], [0.7, 0.7, 0.7], ("separate", "0.7")),
    ],
)
def test_a_penalty_must_tell_elements_apart(left: list[float], fallen: list[float], words: tuple[str, ...]):
    """Cut are the first two of the dimension h, and none of f, whose elements cost nothing here."""
    vectors, falls = {"h": np.array(left), "f": np.ones(1)}, {"h": np.array(fallen), "f": np.ones(1)}
    arguments = {"h": 1.0, "f": 0.0}, vectors, falls, {"h": np.array([2]), "f": np.array([0])}
    if not words:
        return check_gamma(0.1, *arguments)
    with pytest.raises(ConfigError, match=mentioning("weigh.gamma = 0.1", *words)):
        check_gamma(0.1, *arguments)
