"""Dynamic and depthwise convolution and ConvBERT's three kinds equal their equations in numpy, gradients too."""

from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import assert_close
from messages import mentioning
from scipy.special import softmax

from bertzoo.nn import (
    Dense,
    Depthwise,
    DynamicConvolution,
    FixedConvolution,
    SpanConvolution,
    SpanKey,
    depthwise_convolution,
    dynamic_convolution,
    keep_padding,
    zero_padding,
)
from bertzoo.nn.flops import inner_jaxprs, matmul_flops

FLOAT = jnp.dtype("float32")
INIT = nn.initializers.normal()
Arrays = dict[str, np.ndarray]


def convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """y[b,t,h,j] = Σ_w kernel[b,t,h,w] · x[b,t+w-W//2,h,j], with zeros outside."""
    window, length = kernel.shape[-1], x.shape[1]
    y = np.zeros_like(x)
    for t in range(length):
        for w in range(window):
            if 0 <= t + w - window // 2 < length:
                y[:, t] += kernel[:, t, ..., w, None] * x[:, t + w - window // 2]
    return y


def depthwise(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """y[b,t,c] = Σ_w kernel[w,c] · x[b,t+w-W//2,c]."""
    channels = x.reshape(*x.shape[:2], -1)
    kernels = np.broadcast_to(kernel.reshape(len(kernel), -1).T, (*channels.shape, len(kernel)))
    return convolve(channels[..., None], kernels)[..., 0].reshape(x.shape)


def differences(function: Callable[..., np.ndarray], primals: Arrays, cotangent: np.ndarray) -> Arrays:
    """The gradient of <function, cotangent> by central differences in float64, element by element."""
    gradients, step = {}, 1e-5
    for name, value in primals.items():
        gradient = np.zeros_like(value)
        for index in np.ndindex(value.shape):
            sides = []
            for sign in (step, -step):
                moved = value.copy()
                moved[index] += sign
                sides.append((function(**{**primals, name: moved}) * cotangent).sum())
            gradient[index] = (sides[0] - sides[1]) / (2 * step)
        gradients[name] = gradient
    return gradients


def compare(ours: Callable, theirs: Callable[..., np.ndarray], primals: Arrays) -> None:
    """Output and the gradient of every argument."""
    expected = theirs(**primals)
    cotangent = np.random.default_rng(9).normal(size=expected.shape)

    @jax.jit
    def run(tensors: Any) -> Any:
        y, pull = jax.vjp(lambda tensors: ours(**tensors), tensors)
        return y, pull(jnp.asarray(cotangent, jnp.float32))[0]

    y, gradients = run({name: jnp.asarray(value, jnp.float32) for name, value in primals.items()})
    assert_close(y, expected, "y")
    for name, gradient in differences(theirs, primals, cotangent).items():
        assert_close(gradients[name], gradient, f"d{name}")


def draw(**shapes: tuple[int, ...]) -> Arrays:
    random = np.random.default_rng(3)
    return {name: random.normal(size=shape) for name, shape in shapes.items()}


@pytest.mark.parametrize(("length", "window"), [(7, 1), (7, 3), (6, 5), (3, 9)])
def test_both_convolutions_are_their_equations(length: int, window: int) -> None:
    """Also where the window is wider than the row is long."""
    x = (2, length, 3, 2)
    compare(lambda x, kernel: dynamic_convolution(x, kernel), convolve, draw(x=x, kernel=(2, length, 3, window)))
    compare(lambda x, kernel: depthwise_convolution(x, kernel), depthwise, draw(x=x, kernel=(window, 3, 2)))


def dense(*features: int, axes: tuple[str, ...] = ("model", "heads", "head_size")) -> Dense:
    return Dense(features=features, axes=axes, kernel_init=INIT, dtype=FLOAT)


ROWS, LENGTH, WIDTH, HEADS, SIZE, WINDOW = 2, 5, 6, 2, 2, 3
SHAPES = {
    "x": (ROWS, LENGTH, WIDTH),
    "query": (ROWS, LENGTH, HEADS, SIZE),
    "value": (WIDTH, HEADS, SIZE),
    "value_bias": (HEADS, SIZE),
}
GENERATOR = {"generator": (HEADS * SIZE, HEADS, WINDOW), "generator_bias": (HEADS, WINDOW)}
MORE = {
    "span": {
        "spread": (WINDOW, WIDTH),
        "pointwise": (WIDTH, HEADS, SIZE),
        "pointwise_bias": (HEADS, SIZE),
        **GENERATOR,
    },
    "dynamic": {"gate": (WIDTH, HEADS, SIZE), "gate_bias": (HEADS, SIZE), **GENERATOR},
    "fixed": {"spread": (WINDOW, WIDTH)},
}
MASK = np.array([[1] * LENGTH, [1] * (LENGTH - 2) + [0] * 2])


def equation(kind: str, mask: np.ndarray) -> Callable[..., np.ndarray]:
    """ConvBERT §3.1 to §3.3 in numpy, everything before a window times `mask`.

    dynamic: a gated linear unit a · σ(b) (Dauphin et al. 2017) makes the kernels and is what they convolve. fixed: a
    depth-wise separable convolution (Chollet 2017) is a depth-wise one, then a pointwise one.
    """

    def project(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
        return np.einsum("bld,dhk->blhk", x, kernel) + bias

    def apply(x, query, value, value_bias, spread=None, pointwise=None, pointwise_bias=None, generator=None, **more):
        if kind == "fixed":
            return project(depthwise(x * mask[:, :, None], spread), value, value_bias)
        values = project(x, value, value_bias)
        if kind == "span":
            source = project(depthwise(x * mask[:, :, None], spread), pointwise, pointwise_bias) * query
        else:
            source = values = values / (1 + np.exp(-project(x, more["gate"], more["gate_bias"])))
        kernels = softmax(project(source.reshape(ROWS, LENGTH, -1), generator, more["generator_bias"]), axis=-1)
        return convolve(values * mask[:, :, None, None], kernels)

    return apply


def module(kind: str, before_window: Any) -> nn.Module:
    common = {"value": dense(HEADS, SIZE), "before_window": before_window}
    depthwise = Depthwise(window=WINDOW, axes=("model",), kernel_init=INIT, dtype=FLOAT)
    if kind == "fixed":
        return FixedConvolution(depthwise=depthwise, **common)
    common["kernel_generator"] = dense(HEADS, WINDOW, axes=("model", "heads", "window"))
    if kind == "dynamic":
        return DynamicConvolution(gate=dense(HEADS, SIZE), **common)
    return SpanConvolution(span_key=SpanKey(depthwise=depthwise, pointwise=dense(HEADS, SIZE)), **common)


def tree(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """The parameters as the module names them."""

    def layer(name: str) -> dict[str, Any]:
        return {"kernel": given[name], "bias": given[f"{name}_bias"]}

    if kind == "fixed":
        return {"value": layer("value"), "depthwise": {"kernel": given["spread"]}}
    params = {"value": layer("value"), "kernel_generator": layer("generator")}
    if kind == "dynamic":
        return params | {"gate": layer("gate")}
    return params | {"span_key": {"depthwise": {"kernel": given["spread"]}, "pointwise": layer("pointwise")}}


@pytest.mark.parametrize("kind", MORE)
@pytest.mark.parametrize("masked", [True, False])
def test_kinds_are_their_equations(kind: str, masked: bool) -> None:
    layer = module(kind, zero_padding if masked else keep_padding)
    primals = draw(**SHAPES, **MORE[kind])
    if kind != "span":
        del primals["query"]  # nothing but the span's kernels sees it

    def ours(x: Any, query: Any = None, **given: Any) -> Any:
        query = jnp.zeros(SHAPES["query"]) if query is None else query
        return layer.apply({"params": tree(kind, given)}, x, query, jnp.asarray(MASK))

    theirs = equation(kind, MASK if masked else np.ones_like(MASK))
    compare(ours, lambda x, query=None, **given: theirs(x, query, **given), primals)


def jaxprs(jaxpr: Any) -> Iterator[Any]:
    yield jaxpr
    for equation in jaxpr.eqns:
        for inner in inner_jaxprs(equation.params):
            yield from jaxprs(inner)


CASES = [(dynamic_convolution, (2, 32, 3, 16), (2, 32, 3, 9)), (depthwise_convolution, (2, 32, 48), (9, 48))]


@pytest.mark.parametrize(("function", "given", "kernel"), CASES)
def test_no_copies_for_every_tap(function: Callable, given: tuple, kernel: tuple) -> None:
    """No intermediate value is much larger than the input, and the backward pass saves only the inputs."""
    x, k = jnp.ones(given), jnp.ones(kernel)
    traced = jax.make_jaxpr(lambda x, k: jax.vjp(function, x, k)[1](x))(x, k).jaxpr
    largest = max(v.aval.size for inner in jaxprs(traced) for e in inner.eqns for v in e.outvars)
    assert x.size < largest < 2 * x.size
    _, pull = jax.vjp(function, x, k)
    assert sum(leaf.size for leaf in jax.tree.leaves(pull)) == x.size + k.size


@pytest.mark.parametrize(("function", "given", "kernel"), CASES)
def test_operations_are_counted(function: Callable, given: tuple, kernel: tuple) -> None:
    """2 per multiply-add, forward and for each of the two gradients."""
    x, k = jnp.ones(given), jnp.ones(kernel)
    forward = 2 * x.size * 9
    assert matmul_flops(function, x, k) == forward

    def both(x: jax.Array, k: jax.Array) -> Any:
        y, pull = jax.vjp(function, x, k)
        return y, pull(y)

    assert matmul_flops(both, x, k) == 3 * forward
    assert matmul_flops(lambda x: x * x, x) == 0


@pytest.mark.parametrize(("function", "given", "kernel"), CASES)
def test_half_precision_is_summed_in_float32(function: Callable, given: tuple, kernel: tuple) -> None:
    """In bfloat16 the output, and each gradient, is the float32 one rounded once."""
    primals = draw(x=given, kernel=kernel)
    half = [jnp.asarray(value, jnp.bfloat16) for value in primals.values()]
    exact = [value.astype(jnp.float32) for value in half]
    results = []
    for x, k in (half, exact):
        y, pull = jax.vjp(function, x, k)
        results.append([y, *pull(x)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == jnp.bfloat16
        np.testing.assert_allclose(ours.astype(jnp.float32), theirs, rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "kernel"), [(dynamic_convolution, (1, 6, 2, 4)), (depthwise_convolution, (4, 2, 4))]
)
def test_even_windows_raise(function: Callable, kernel: tuple) -> None:
    with pytest.raises(ValueError, match=mentioning(4)):
        function(jnp.ones((1, 6, 2, 4)), jnp.ones(kernel))
