"""Discrepancies of teacher and student, against numpy from the equations (MobileBERT §3.5)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import mentioning
from scipy.special import log_softmax, softmax

from bertzoo.core.errors import ConfigError
from bertzoo.objectives import transfer

B, L, D, H, V = 2, 5, 8, 3, 11
RNG = np.random.default_rng(0)
TEACHER, STUDENT = RNG.normal(2, 3, (2, B, L, D))
WEIGHTS = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.float64)


def maps(heads):
    scores = RNG.normal(0, 2, (B, heads, L, L))
    return softmax(np.where(WEIGHTS[:, None, None, :] > 0, scores, -1e9), axis=-1)


def tokens():
    return [(b, t) for b in range(B) for t in range(L) if WEIGHTS[b, t]]


STATES = {  # and the distance between the states of a token
    "feature": (transfer.feature_map, lambda x, y: np.mean(((x - x.mean()) / x.std() - (y - y.mean()) / y.std()) ** 2)),
    "mean": (transfer.mean, lambda x, y: (x.mean() - y.mean()) ** 2),
    "variance": (transfer.variance, lambda x, y: abs(x.var() - y.var())),
}


@pytest.mark.parametrize("name", STATES)
def test_states(name):
    ours, theirs = STATES[name]
    expected = sum(theirs(TEACHER[place], STUDENT[place]) for place in tokens())
    assert ours(TEACHER, STUDENT, WEIGHTS) == pytest.approx(expected, rel=1e-5)
    assert ours(TEACHER, TEACHER, WEIGHTS) == pytest.approx(0, abs=1e-6)
    elsewhere = np.where(WEIGHTS[..., None] > 0, STUDENT, 100.0)
    assert ours(TEACHER, elsewhere, WEIGHTS) == ours(TEACHER, STUDENT, WEIGHTS)  # no weight, no effect


def test_attention_loss_is_kl_with_the_gradient_of_cross_entropy():
    teacher, student = maps(H), maps(H)

    def divergence(p, q):
        seen = p > 0
        return np.sum(p[seen] * np.log(p[seen] / q[seen]))

    expected = sum(np.mean([divergence(teacher[b, h, t], student[b, h, t]) for h in range(H)]) for b, t in tokens())
    assert transfer.attention(teacher, student, WEIGHTS) == pytest.approx(expected, rel=1e-5)
    assert transfer.attention(teacher, teacher, WEIGHTS) == pytest.approx(0, abs=1e-5)

    scores = RNG.normal(size=(B, H, L, L))
    ours = jax.grad(lambda s: transfer.attention(teacher, jax.nn.softmax(s), WEIGHTS))(jnp.asarray(scores))
    # Of −Σ T·log softmax(s): softmax(s) − T, by the weight of the query, averaged over heads.
    theirs = (softmax(scores, axis=-1) - teacher) * WEIGHTS[:, None, :, None] / H
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_maps_of_other_numbers_of_heads_are_averaged():
    teacher, student = maps(H), maps(2)
    single = transfer.attention(teacher.mean(1, keepdims=True), student.mean(1, keepdims=True), WEIGHTS)
    assert transfer.attention(teacher, student, WEIGHTS) == pytest.approx(float(single), rel=1e-6)
    assert single != pytest.approx(0, abs=1e-3)


def test_probabilities_that_vanish_leave_loss_and_gradient_finite():
    teacher = np.full((1, 1, 1, 2), 0.5)
    loss, gradient = jax.value_and_grad(lambda s: transfer.attention(teacher, jax.nn.softmax(s), np.ones((1, 1))))(
        jnp.array([[[[500.0, -500.0]]]])
    )
    assert np.isfinite(loss) and np.isfinite(gradient).all() and loss > 40


def test_soft_cross_entropy():
    teacher, student = RNG.normal(0, 3, (2, B, L, V))
    expected = -np.sum(softmax(teacher, axis=-1) * log_softmax(student, axis=-1), axis=-1)
    np.testing.assert_allclose(transfer.soft_cross_entropy(teacher, student), expected, rtol=1e-5)


@pytest.mark.parametrize("ours", [ours for ours, _ in STATES.values()])
def test_no_gradient_reaches_the_teacher(ours):
    assert not np.any(jax.grad(ours)(jnp.asarray(TEACHER), STUDENT, WEIGHTS))
    assert np.any(jax.grad(ours, argnums=1)(TEACHER, jnp.asarray(STUDENT), WEIGHTS))


def test_maps_with_other_numbers_of_keys_raise():
    with pytest.raises(ConfigError, match=mentioning(L, 3, "stride")):
        transfer.attention(maps(H), maps(H)[..., ::2], WEIGHTS)
