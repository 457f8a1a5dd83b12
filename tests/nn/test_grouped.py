"""Grouped equals torch's Conv1d (tests/golden/grouped.npz) and the equation in numpy."""

import json
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import assert_close
from messages import mentioning

from bertzoo.models import Compute
from bertzoo.models.attention import GroupedHeads
from bertzoo.models.parts import layer_factory
from bertzoo.nn import Grouped, grouped_einsum

TOLERANCE = 1e-6
FILE = Path(__file__).parents[1] / "golden" / "grouped.npz"
with np.load(FILE, allow_pickle=False) as file:
    CASES = sorted({key.split("/")[0] for key in file})


def load(name: str) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """The arguments of torch's Conv1d, and the tensors of one case in our layout."""
    with np.load(FILE, allow_pickle=False) as file:
        tensors = {key.split("/")[1]: file[key] for key in file if key.startswith(f"{name}/")}
    return json.loads(str(tensors.pop("case"))), tensors


def module(case: dict[str, int]) -> Grouped:
    return Grouped(
        features=(case["out_channels"],),
        groups=case["groups"],
        kernel_init=nn.initializers.normal(),
        dtype=jnp.dtype("float32"),
        window=case["kernel_size"],
        stride=case.get("stride", 1),
        dilation=case.get("dilation", 1),
        padding=case.get("padding", 0),
    )


def convolve(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray, case: dict[str, int]) -> np.ndarray:
    """y[b,t,o] = bias[o] + Σ_w Σ_i x[b, t·stride + w·dilation - padding, group(o)·I/G + i] · kernel[w,i,o]."""
    stride, dilation, padding = (
        case.get(name, default) for name, default in [("stride", 1), ("dilation", 1), ("padding", 0)]
    )
    window, inputs, outputs = kernel.shape
    rows, length = x.shape[:2]
    steps = (length + 2 * padding - dilation * (window - 1) - 1) // stride + 1
    y = np.tile(bias.astype(np.float64), (rows, steps, 1))
    for t in range(steps):
        for w in range(window):
            source = t * stride + w * dilation - padding
            for o in range(outputs if 0 <= source < length else 0):
                group = o // (outputs // case["groups"])
                y[:, t, o] += x[:, source, group * inputs : (group + 1) * inputs].astype(np.float64) @ kernel[w, :, o]
    return y


@pytest.mark.parametrize("name", CASES)
def test_equals_torch(name: str) -> None:
    """Output and gradients of x, kernel and bias; windows that the einsum cannot multiply go to the convolution."""
    case, tensors = load(name)
    layer = module(case)

    def apply(x, kernel, bias):
        return layer.apply({"params": {"kernel": kernel, "bias": bias}}, x)

    names = ("x", "kernel", "bias")
    y, pull = jax.vjp(apply, *(jnp.asarray(tensors[name]) for name in names))
    gradients = dict(zip((f"d{name}" for name in names), pull(jnp.asarray(tensors["cotangent"])), strict=True))
    for what, value in ({"y": y} | gradients).items():
        assert_close(value, tensors[what], what, tolerance=TOLERANCE)


@pytest.mark.parametrize(("kernel_size", "dilation", "stride"), [(3, 2, 1), (5, 1, 3), (1, 1, 2)])
def test_keys_and_values_of_a_window_equal_the_equation(kernel_size: int, dilation: int, stride: int) -> None:
    """Softmax attention to every stride-th key, in numpy; tokens beyond a row's end are 0 and have no key."""
    heads = GroupedHeads(query_groups=2, kernel_size=kernel_size, dilation=dilation, stride=stride)
    module: Any = heads.build(layer_factory(Compute(), 1.0, 1e-12), 8, 2, 0.0)
    x = np.random.default_rng(0).normal(size=(2, 7, 8)).astype(np.float32)
    mask = (np.arange(7) < [[7], [4]]).astype(np.int32)
    params: Any = nn.unbox(module.init(jax.random.key(0), x, mask, False))["params"]
    output, probabilities = module.apply({"params": params}, x, mask, False)

    def convolved(name: str, groups: int, x: np.ndarray, **case: int) -> np.ndarray:
        kernel, bias = (np.asarray(params[name][part]) for part in ("kernel", "bias"))
        return convolve(x, kernel, bias, {"groups": groups} | case)

    window = {"stride": stride, "dilation": dilation, "padding": dilation * (kernel_size // 2)}
    seen = x * mask[:, :, None]
    query = convolved("query", 2, x).reshape(2, 7, 2, 4)
    key, value = (convolved(name, 4, seen, **window).reshape(2, -1, 2, 4) for name in ("key", "value"))
    scores = np.einsum("blhk,bmhk->bhlm", query, key) / 2
    weights = np.exp(scores - scores.max()) * mask[:, None, None, ::stride]
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(probabilities, weights, atol=1e-5)
    context = np.einsum("bhlm,bmhk->blhk", weights, value).reshape(2, 7, 8)
    np.testing.assert_allclose(output, convolved("output", 1, context), atol=1e-4)


def test_axes_after_the_second_are_channels() -> None:
    """Heads are read and written head-major, so that group g of G sees the g-th block of heads."""
    case, tensors = load("window1_groups4")
    params = {"kernel": tensors["kernel"], "bias": tensors["bias"]}
    split = module(case).clone(features=(8, 7))
    y = np.asarray(split.apply({"params": params}, tensors["x"].reshape(*tensors["x"].shape[:2], 4, 6)))
    assert y.shape == (*tensors["y"].shape[:2], 8, 7)
    assert_close(y, tensors["y"].reshape(y.shape), "y", tolerance=TOLERANCE)


def test_einsum_rejects_wider_windows() -> None:
    with pytest.raises(ValueError, match=mentioning("window", 3)):
        grouped_einsum(jnp.ones((1, 4, 4)), jnp.ones((3, 2, 4)), 2)


def test_groups_must_divide_the_channels() -> None:
    layer = module({"out_channels": 6, "groups": 4, "kernel_size": 1})
    with pytest.raises(ValueError, match=mentioning("groups", 4, 8, 6)):
        layer.init(jax.random.key(0), jnp.ones((1, 2, 8)))
