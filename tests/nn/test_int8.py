"""Simulated int8 equals the grids of Jacob et al. 2018 in numpy; ranges move as an exponential moving average."""

import dataclasses
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import CASES, SIZES

from bertzoo.heads import SequenceClassification
from bertzoo.models import Compute
from bertzoo.nn import int8
from bertzoo.nn.parameter import init_shapes
from bertzoo.train.state import named

EMPTY = jnp.zeros((1, 2))


def on_grid(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """x on the asymmetric grid of a range (Jacob et al. 2018, Eq. 1 and §3): 256 values, one of which is 0."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255
    zero = np.rint(-128 - low / scale)
    return (np.clip(np.rint(x / scale) + zero, -128, 127) - zero) * scale


def activations(x: Any, range_: Any, observed: Any = (0.0, 1.0)) -> jax.Array:
    """`fake_activations` of a vector with one group."""
    ends = (jnp.asarray([one], jnp.float32) for one in (range_, observed))
    return int8.fake_activations(jnp.asarray(x, jnp.float32)[None], *ends, 1)[0]


@pytest.mark.parametrize("ends", [(-1.5, 3.0), (-4.0, -1.0), (0.5, 2.0), (-0.01, 700.0)])
def test_activations_lie_on_the_grid_of_their_range(ends: tuple[float, float]) -> None:
    x = np.random.default_rng(0).uniform(-5, 5, 1000)
    step = (max(ends[1], 0) - min(ends[0], 0)) / 255
    ours, expected = np.asarray(activations(x, ends)), on_grid(x, *ends)
    # Where x is within rounding of a half step, float32 may take the neighbour.
    assert (np.abs(ours - expected) < 1e-3 * step).mean() > 0.995 and np.abs(ours - expected).max() < 1.01 * step


def test_halves_round_to_even_and_zero_is_exact() -> None:
    assert activations([0.5, 1.5, 2.5, -0.5, -1.5, 0.0], (-128, 127)).tolist() == [0, 2, 2, 0, -2, 0]
    assert activations([0.0], (-1.234, 3.1)).tolist() == [0]


def test_the_gradient_passes_inside_the_range_only() -> None:
    x = jnp.asarray([-2.0, -1.0, 0.3, 1.0, 2.0])
    _, pull = jax.vjp(lambda x: activations(x, (-1.0, 1.0)), x)
    assert pull(jnp.arange(1.0, 6.0))[0].tolist() == [0, 2, 3, 4, 0]


@pytest.mark.parametrize("parts", [1, 4])
def test_ranges_are_a_moving_average_over_steps(parts: int) -> None:
    """The first step takes the batch's range, later ones a share of it; microbatches count once together."""
    draw = np.random.default_rng(1)
    observed = jnp.asarray(draw.uniform(-1, 1, (3, parts, 2)) + np.array([-2, 2]), jnp.float32)
    range_, expected = EMPTY, np.mean(observed[0], 0)
    for step in range(3):
        for_range = lambda ends, seen: jnp.sum(int8.fake_activations(jnp.ones((1, 4)), ends, seen[None], parts))  # noqa: E731
        range_ = range_ - sum(jax.grad(for_range)(range_, seen) for seen in observed[step]) / int8.GRADIENT
        expected = expected if step == 0 else expected + int8.RATE * (np.mean(observed[step], 0) - expected)
        np.testing.assert_allclose(range_[0], expected, rtol=1e-5)


def test_a_microbatch_of_padding_moves_no_range() -> None:
    range_ = jnp.asarray([[-1.0, 2.0]])
    for_range = lambda ends: jnp.sum(int8.fake_activations(jnp.ones((1, 4)), ends, EMPTY, 2))  # noqa: E731
    assert (jax.grad(for_range)(range_) == 0).all()


def test_a_range_has_the_extremes_of_the_rows_that_count() -> None:
    x = np.random.default_rng(2).normal(size=(4, 5, 3, 2)).astype(np.float32)
    x[2] *= 10
    ends = int8.observe(jnp.asarray(x), jnp.asarray([1.0, 1, 0, 1]))
    rows = x[[0, 1, 3]]
    np.testing.assert_array_equal(ends, np.stack([rows.min((0, 1, 3)), rows.max((0, 1, 3))], -1))
    assert (int8.observe(jnp.asarray(x), jnp.zeros(4)) == 0).all()


@pytest.mark.parametrize("axes", [(0,), (0, 1), (-1,)])
def test_weights_have_a_grid_per_channel(axes: tuple[int, ...]) -> None:
    weights = np.random.default_rng(3).normal(size=(6, 5, 4)).astype(np.float32)
    scale = np.abs(weights).max(axes, keepdims=True) / 127
    ours, pull = jax.vjp(lambda x: int8.fake_weights(x, axes), jnp.asarray(weights))
    np.testing.assert_allclose(ours, np.rint(weights / scale) * scale, atol=1e-6)
    assert (pull(jnp.asarray(weights))[0] == weights).all()


def rows(vocab: int) -> tuple[jax.Array, ...]:
    ids = jnp.asarray(np.random.default_rng(4).integers(1, vocab, (3, 8)))
    mask = jnp.asarray(np.arange(8) < np.array([[8], [5], [0]]))  # the last row fills a batch and holds no text
    return ids, jnp.zeros_like(ids), mask.astype(jnp.int32)


def simulated(name: str, **compute: Any) -> int8.Int8Model:
    model = dataclasses.replace(CASES[name][0], layers=2)
    return int8.Int8Model(SequenceClassification().build(model, Compute(**compute)))


def logits(module: Any, params: Any) -> jax.Array:
    return module.apply({"params": params}, *rows(SIZES["vocab_size"]), train=False).logits


def test_groups_and_repeated_layers_have_ranges_of_their_own() -> None:
    def places(name: str) -> dict[str, tuple[int, ...]]:
        boxed = init_shapes(simulated(name).init, jax.random.key(0), *rows(SIZES["vocab_size"]))
        return {path: leaf.shape for path, leaf in named(nn.unbox(boxed)["params"][int8.RANGES]).items()}

    squeezebert, albert = places("squeezebert"), places("albert")
    assert squeezebert["encoder/layers_1/attention/query/0/output"] == (4, 2)
    for update in ("attention/output", "feed_forward/output"):
        assert squeezebert[f"encoder/layers_1/{update}/0/output"] == (SIZES["hidden_size"], 2)
    assert squeezebert["pooler/0/input_0"] == squeezebert["classifier/output/0/output"] == (1, 2)
    assert len(squeezebert) == 2 * (2 * 6 + 2)
    inputs = [path for path in albert if "attention/query" in path and path.endswith("input_0")]
    assert inputs == [f"encoder/layers_0/attention/query/{layer}/input_0" for layer in range(2)]


@pytest.mark.slow
def test_a_model_finds_its_ranges_under_remat_too() -> None:
    """One step sets every range to what its batch has, of each pass through a shared layer, and so changes no output.

    Without the part of the ranges, they come from the batch.
    """
    module, other = simulated("albert"), simulated("albert", remat=True)
    params = nn.unbox(jax.jit(module.init)(jax.random.key(0), *rows(SIZES["vocab_size"])))["params"]

    @partial(jax.jit, static_argnums=0)
    def outputs_and_gradients(module: int8.Int8Model, params: Any) -> Any:
        return jax.vjp(partial(logits, module), params)[0], jax.grad(lambda p: jnp.sum(logits(module, p) ** 2))(params)

    before, gradient = outputs_and_gradients(module, params)
    moved = jax.tree.map(lambda old, change: old - change / int8.GRADIENT, params[int8.RANGES], gradient[int8.RANGES])
    for path, leaf in named(moved).items():
        assert (leaf[:, 0] < leaf[:, 1]).all()
        if path.endswith(("attention/output/0/output", "feed_forward/output/0/output")):
            np.testing.assert_allclose(leaf[:, 0] / leaf[:, 1], -128 / 127, rtol=1e-6)
    after, gradient = outputs_and_gradients(module, {**params, int8.RANGES: moved})
    again, recomputed = outputs_and_gradients(other, {**params, int8.RANGES: moved})
    none = {name: part for name, part in params.items() if name != int8.RANGES}
    for same in (after, again, logits(module, none)):
        np.testing.assert_allclose(same, before, rtol=1e-5)
    for path, leaf in named(gradient).items():
        np.testing.assert_allclose(named(recomputed)[path], leaf, rtol=1e-3, atol=1e-5 * np.abs(leaf).max())
    assert np.abs(before - logits(module.model, none)).max() > 1e-6
