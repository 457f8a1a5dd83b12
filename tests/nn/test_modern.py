"""ModernBERT's layers against numpy."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bertzoo.conversion.families import MODERNBERT
from bertzoo.conversion.family import Inexpressible
from bertzoo.conversion.huggingface import build_config_json
from bertzoo.heads import MaskedLanguageModel, parameter_shapes
from bertzoo.models import Compute, ModernBert
from bertzoo.models.attention import GroupedHeads, MixedHeads
from bertzoo.nn import Dropout
from bertzoo.nn.modern import RotaryAttention, attend_near, rotate


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


NO_DROPOUT = Dropout(0.0).bind({})


def full_attention(query, key, value, mask, reach):
    """The plain equation over all pairs of tokens: no weight beyond the reach, and 0 where nothing is seen."""
    scores = jnp.einsum("blhk,bmhk->bhlm", query, key) / query.shape[-1] ** 0.5
    apart = jnp.abs(jnp.arange(query.shape[1])[:, None] - jnp.arange(key.shape[1]))
    weights = jnp.exp(scores) * ((apart <= reach) & (mask[:, None, None] > 0))
    sums = jnp.sum(weights, axis=-1, keepdims=True)
    return jnp.einsum("bhlm,bmhj->blhj", weights / jnp.where(sums == 0, 1, sums), value)


def pulled(function, query, key, value, change):
    context, pull = jax.vjp(function, query, key, value)
    return context, *pull(change)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(st.integers(2, 70), st.integers(0, 12), st.integers(0, 2**16))
def test_blocks_of_a_window_equal_the_full_mask_and_so_do_their_gradients(length, reach, seed):
    random = np.random.default_rng(seed)
    arrays = [random.normal(size=(2, length, 2, size)).astype(np.float32) for size in (4, 4, 3, 3)]
    mask = (random.random((2, length)) < random.random((2, 1))).astype(np.int32)

    def near(query, key, value):
        return attend_near(query, key, value, jnp.asarray(mask), NO_DROPOUT, False, reach)[0]

    def full(query, key, value):
        return full_attention(query, key, value, mask, reach)

    for ours, theirs in zip(*(jax.jit(partial(pulled, function))(*arrays) for function in (near, full)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_the_memory_of_a_window_grows_with_the_tokens():
    """Of 512 and 1,024 tokens; those of all pairs would need four times as much for twice the tokens."""

    def bytes_of(length):
        shape = jax.ShapeDtypeStruct((1, length, 2, 8), jnp.float32)
        mask = jax.ShapeDtypeStruct((1, length), jnp.int32)

        def loss(query, key, value, mask):
            return jnp.sum(attend_near(query, key, value, mask, NO_DROPOUT, False, 16)[0] ** 2)

        compiled = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(shape, shape, shape, mask).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert bytes_of(1024) < 2.2 * bytes_of(512)


def test_the_layers_that_see_all_tokens_and_the_final_norm():
    model = ModernBert(vocab_size=50, hidden_size=8, layers=5, heads=2, feed_forward_size=6, window=6, global_every=2)
    layers = model.backbone(Compute()).encoder.layers
    assert [layer.attention.reach for layer in layers] == [None, 3, None, 3, None]
    assert [layer.attention.theta for layer in layers] == [160000, 10000, 160000, 10000, 160000]
    assert [layer.attention_norm is None for layer in layers] == [True, False, False, False, False]
    assert [layer.output_norm is None for layer in layers] == [True, True, True, True, False]


def test_the_layers_of_four_papers_in_modernbert():
    """Groups, a bottleneck, half of the heads as convolutions, and a width for each layer's feed-forward."""
    small: Any = {"vocab_size": 50, "hidden_size": 16, "layers": 2, "heads": 2}
    shapes = parameter_shapes(
        ModernBert(
            **small, bottleneck_size=8, feed_forward_size=(6, 4), feed_forward_groups=2, attention=GroupedHeads()
        ),
        MaskedLanguageModel(),
    )
    layer = {path.removeprefix("encoder/layers_1/"): shape for path, shape in shapes.items() if "layers_1" in path}
    assert {path: shape for path, shape in layer.items() if not path.endswith("bias")} == {
        "bottleneck/dense/kernel": (16, 8),
        "bottleneck/norm/scale": (8,),
        "attention/query/kernel": (1, 2, 8),
        "attention/key/kernel": (1, 2, 8),
        "attention/value/kernel": (1, 2, 8),
        "attention/output/kernel": (1, 8, 8),
        "feed_forward_norm/scale": (8,),
        "feed_forward/intermediate/kernel": (1, 4, 4),
        "feed_forward/gate/kernel": (1, 4, 4),
        "feed_forward/output/kernel": (1, 2, 8),
        "output/kernel": (8, 16),
        "output_norm/scale": (16,),
    }
    shapes = parameter_shapes(ModernBert(**small, attention=MixedHeads(kernel_size=3)), MaskedLanguageModel())
    attention = {path.split("/attention/")[1]: shape for path, shape in shapes.items() if "layers_1/attention/" in path}
    assert attention["query/kernel"] == (16, 1, 8)
    assert attention["convolution/kernel_generator/kernel"] == (8, 1, 3)
    assert attention["output/kernel"] == (2, 8, 16)
    assert not any(path.endswith("bias") for path in attention)


@pytest.mark.parametrize(
    "fields",
    [{"attention": MixedHeads()}, {"bottleneck_size": 96}, {"feed_forward_groups": 2}, {"feed_forward_size": (8, 4)}],
)
def test_hugging_face_has_no_class_for_these_layers(fields):
    with pytest.raises(Inexpressible):
        build_config_json(MODERNBERT, ModernBert(**{"layers": 2} | fields), MaskedLanguageModel())
