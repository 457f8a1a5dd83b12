"""ModernBERT's layers against numpy."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bertzoo.core.errors import ConfigError
from bertzoo.models import Compute, ModernBert
from bertzoo.nn import Dropout
from bertzoo.nn.modern import RotaryAttention, rotate


def test_rotations_multiply_complex_numbers():
    """RoFormer's Eq. 34: the pair (k, k + K/2) as a complex number, times e^(i · place · theta^(-2k/K))."""
    x = np.random.default_rng(0).normal(size=(2, 5, 3, 8))
    places = np.array([[0, 1, 2, 3, 4], [7, 0, 3, 9, 1]])
    turns = np.exp(1j * places[..., None] * 100.0 ** (-2 * np.arange(4) / 8))[:, :, None]
    rotated = (x[..., :4] + 1j * x[..., 4:]) * turns
    expected = np.concatenate([rotated.real, rotated.imag], axis=-1)
    np.testing.assert_allclose(rotate(jnp.asarray(x), jnp.asarray(places), 100.0), expected, atol=1e-6)


@pytest.mark.parametrize("reach", [None, 0, 2, 6, 7])
def test_a_token_sees_what_is_within_reach_and_scores_depend_on_distance(reach):
    """Identity maps, so that the attention's inputs are its queries, keys and values."""
    x = np.random.default_rng(1).normal(size=(1, 8, 1, 4)).astype(np.float32)
    mask = (np.arange(8) < 7).astype(np.int32)[None]
    same: Any = lambda y: y  # noqa: E731
    attention = RotaryAttention(
        query=same, key=same, value=same, output=same, dropout=Dropout(0.0), theta=10.0, reach=reach
    )
    output: Any = attention.apply({}, jnp.asarray(x), jnp.asarray(mask), False)
    found = np.asarray(output[1])
    angle = np.arange(8)[:, None] * 10.0 ** (-np.arange(0, 4, 2) / 4)
    turned = (x[0, :, 0, :2] + 1j * x[0, :, 0, 2:]) * np.exp(1j * angle)
    scores = (turned @ turned.conj().T).real / 2
    apart = np.abs(np.arange(8)[:, None] - np.arange(8))
    weights = np.exp(scores) * (mask[0] > 0) * (apart <= (8 if reach is None else reach))
    rows = slice(0, 7)  # the last token is padding
    np.testing.assert_allclose(found[0, 0, rows], weights[rows] / weights[rows].sum(1, keepdims=True), atol=1e-6)


def test_the_layers_that_see_all_tokens_and_the_final_norm():
    model = ModernBert(vocab_size=50, hidden_size=8, layers=5, heads=2, feed_forward_size=6, window=6, global_every=2)
    layers = model.backbone(Compute()).encoder.layers
    assert [layer.attention.reach for layer in layers] == [None, 3, None, 3, None]
    assert [layer.attention.theta for layer in layers] == [160000, 10000, 160000, 10000, 160000]
    assert [layer.attention_norm is None for layer in layers] == [True, False, False, False, False]
    assert [layer.output_norm is None for layer in layers] == [True, True, True, True, False]


def test_heads_of_an_odd_size_cannot_be_rotated():
    with pytest.raises(ConfigError, match="heads = 2 of hidden_size = 6"):
        ModernBert(hidden_size=6, heads=2)
