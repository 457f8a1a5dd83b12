"""attend: cuDNN's fused attention is used where it computes the same, with the same mask."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertzoo.nn import Dropout, attention

ROWS, TOKENS, HEADS, SIZE = 3, 16, 2, 8
MASK = jnp.asarray(np.arange(TOKENS)[None] < np.array([[16], [9], [1]]), jnp.int32)


def arrays(dtype: Any = jnp.bfloat16, value_size: int = SIZE, queries: int = TOKENS) -> list[jax.Array]:
    shapes = [(ROWS, length, HEADS, size) for length, size in ((queries, SIZE), (TOKENS, SIZE), (TOKENS, value_size))]
    return [
        jax.random.normal(key, shape, dtype)
        for key, shape in zip(jax.random.split(jax.random.key(0), 3), shapes, strict=True)
    ]


def on_gpu(monkeypatch: pytest.MonkeyPatch, capability: str = "9.0", platform: str = "cuda 13000") -> list[str]:
    """Let JAX's default device look like a GPU, whose fused attention is JAX's own; returns the calls of it."""
    calls, fused = [], jax.nn.dot_product_attention

    def instead(*arguments: jax.Array, implementation: str, **more: Any) -> jax.Array:
        calls.append(implementation)
        return fused(*arguments, implementation="xla", **more)

    gpu = SimpleNamespace(client=SimpleNamespace(platform_version=platform), compute_capability=capability)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [gpu])
    monkeypatch.setattr(jax.nn, "dot_product_attention", instead)
    return calls


def context(*inputs: jax.Array, rate: float = 0.1, train: bool = False) -> jax.Array:
    query, key, value = inputs
    dropout = Dropout(rate).bind({}, rngs={"dropout": jax.random.key(1)})
    return attention.attend(query, key, value, MASK, dropout, train)[0]


def test_fused_attention_equals_the_plain_one_and_so_do_its_gradients(monkeypatch):
    inputs = arrays()
    weights = jax.random.normal(jax.random.key(2), inputs[0].shape)

    def loss(*inputs: jax.Array) -> jax.Array:
        return jnp.sum(context(*inputs).astype(jnp.float32) * weights)

    plain = [context(*inputs), *jax.grad(loss, argnums=(0, 1, 2))(*inputs)]
    calls = on_gpu(monkeypatch)
    fused = [context(*inputs), *jax.grad(loss, argnums=(0, 1, 2))(*inputs)]
    assert set(calls) == {"cudnn"}
    for ours, theirs in zip(fused, plain, strict=True):
        ours, theirs = np.asarray(ours, np.float32), np.asarray(theirs, np.float32)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2**-6 * np.abs(theirs).max())


@pytest.mark.parametrize(
    ("inputs", "options", "gpu"),
    [
        (arrays(jnp.float32), {}, {}),
        (arrays(value_size=SIZE // 2), {}, {}),
        (arrays(queries=1), {}, {}),
        (arrays(), {"train": True}, {}),
        (arrays(), {}, {"capability": "7.5"}),
        (arrays(), {}, {"capability": "gfx90a", "platform": "rocm 70000"}),
    ],
    ids=["float32", "narrow values", "one query", "dropout", "an old GPU", "no NVIDIA GPU"],
)
def test_the_plain_form_stays_where_cudnn_has_no_equal(inputs, options, gpu, monkeypatch):
    calls = on_gpu(monkeypatch, **gpu)
    context(*inputs, **options)
    assert calls == []


def test_fused_attention_serves_training_without_dropout(monkeypatch):
    calls = on_gpu(monkeypatch)
    context(*arrays(), rate=0.0, train=True)
    assert calls == ["cudnn"]
