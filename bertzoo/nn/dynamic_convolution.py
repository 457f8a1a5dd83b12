"""Convolutions over time, written as products of shifted slices, and ConvBERT's three uses of them."""

from collections.abc import Callable, Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import parameter
from bertzoo.nn.positions import take_tokens

BeforeWindow = Callable[[jax.Array, jax.Array], jax.Array]


def _padded(x: jax.Array, window: int) -> jax.Array:
    """(B,L,...) -> (B,L+W-1,...), zeros on both sides; the window must be odd to have a middle."""
    if window % 2 == 0:
        raise ValueError(f"a window of {window} has no middle: give an odd one")
    return jnp.pad(x, ((0, 0), (window // 2, window // 2), *[(0, 0)] * (x.ndim - 2)))


def _shifted(x: jax.Array, window: int) -> Iterator[jax.Array]:
    """(B,L,...) -> for each tap w in turn, x[:, t + w - W//2] in float32, the type that sums are kept in."""
    padded = _padded(x, window)
    for tap in range(window):
        yield padded[:, tap : tap + x.shape[1]].astype(jnp.float32)


def _over_taps(x: jax.Array, dy: jax.Array, window: int, axis: int | tuple[int, ...]) -> jax.Array:
    """(W,...): Σ over `axis` of dy · (x shifted by tap w); a loop, because unrolled XLA keeps W copies of x."""
    padded = _padded(x, window)

    def tap(w: jax.Array) -> jax.Array:
        shifted = jax.lax.dynamic_slice_in_dim(padded, w, x.shape[1], axis=1)
        return jnp.sum(dy.astype(jnp.float32) * shifted, axis).astype(x.dtype)

    return jax.lax.map(tap, jnp.arange(window))


# Both convolutions save only their inputs for the backward pass, no shifted copies. Their parts are jitted under names
# with "convolution", by which flops.py recognises their products.
@jax.custom_vjp
@jax.jit
def dynamic_convolution(value_BLHJ: jax.Array, kernel_BLHW: jax.Array) -> jax.Array:
    """(B,L,H,J), (B,L,H,W) -> (B,L,H,J): y_t = Σ_w kernel_tw · value_(t+w-W//2) (Wu et al. 2019, §3).

    Zeros beyond the ends. Every position and head has its own kernel; tap 0 is the leftmost.
    """
    y_BLHJ = jnp.zeros(value_BLHJ.shape, jnp.float32)
    for tap, value in enumerate(_shifted(value_BLHJ, kernel_BLHW.shape[-1])):
        y_BLHJ = y_BLHJ + kernel_BLHW[..., tap, None] * value
    return y_BLHJ.astype(value_BLHJ.dtype)


@jax.jit
def _dynamic_convolution_backward(
    inputs: tuple[jax.Array, jax.Array], dy_BLHJ: jax.Array
) -> tuple[jax.Array, jax.Array]:
    value_BLHJ, kernel_BLHW = inputs
    window = kernel_BLHW.shape[-1]
    dvalue_BLHJ = jnp.zeros(value_BLHJ.shape, jnp.float32)
    shifted = zip(_shifted(dy_BLHJ, window), _shifted(kernel_BLHW, window), strict=True)
    for tap, (dy, kernel) in enumerate(shifted):
        dvalue_BLHJ = dvalue_BLHJ + kernel[..., window - 1 - tap, None] * dy
    dkernel_BLHW = jnp.moveaxis(_over_taps(value_BLHJ, dy_BLHJ, window, axis=-1), 0, -1)
    return dvalue_BLHJ.astype(value_BLHJ.dtype), dkernel_BLHW


dynamic_convolution.defvjp(
    lambda value, kernel: (dynamic_convolution(value, kernel), (value, kernel)), _dynamic_convolution_backward
)


@jax.jit
def convolution_at(value_BLHJ: jax.Array, kernel_BRHW: jax.Array, positions_BR: jax.Array) -> jax.Array:
    """(B,L,H,J), (B,R,H,W) -> (B,R,H,J): `dynamic_convolution` at `positions_BR` only."""
    (batch, rows), window = positions_BR.shape, kernel_BRHW.shape[-1]
    taps_BRW = positions_BR[:, :, None] + jnp.arange(window)
    seen = take_tokens(_padded(value_BLHJ, window), taps_BRW.reshape(batch, rows * window))
    seen_BRWHJ = seen.reshape(batch, rows, window, *value_BLHJ.shape[2:]).astype(jnp.float32)
    kernel_BRWH = jnp.moveaxis(kernel_BRHW, -1, 2).astype(jnp.float32)
    return jnp.sum(kernel_BRWH[..., None] * seen_BRWHJ, axis=2).astype(value_BLHJ.dtype)


@jax.custom_vjp
@jax.jit
def depthwise_convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """(B,L,*C), (W,*C) -> (B,L,*C): y_t = Σ_w kernel_w · x_(t+w-W//2), every channel by itself, zeros outside."""
    y = jnp.zeros(x.shape, jnp.float32)
    for tap, shifted in enumerate(_shifted(x, len(kernel))):
        y = y + kernel[tap] * shifted
    return y.astype(x.dtype)


@jax.jit
def _depthwise_convolution_backward(inputs: tuple[jax.Array, jax.Array], dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = inputs
    return depthwise_convolution(dy, kernel[::-1]), _over_taps(x, dy, len(kernel), axis=(0, 1))


depthwise_convolution.defvjp(
    lambda x, kernel: (depthwise_convolution(x, kernel), (x, kernel)), _depthwise_convolution_backward
)


def zero_padding(x: jax.Array, mask_BL: jax.Array) -> jax.Array:
    """Zero the padding of x (B,L,...), so that a window sees the same beyond a row's end as beyond the batch's."""
    return jnp.where(jnp.expand_dims(mask_BL, tuple(range(2, x.ndim))) > 0, x, jnp.zeros((), x.dtype))


def keep_padding(x: jax.Array, mask_BL: jax.Array) -> jax.Array:
    """Return x: windows see the padding's values, as in the reference code."""
    return x


class Depthwise(nn.Module):
    """(B,L,*C) -> (B,L,*C) with kernel (W,*C) and no bias; `axes` names every channel axis."""

    window: int
    axes: tuple[str, ...]
    kernel_init: Callable
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = self.window, *x.shape[2:]
        kernel = parameter(self, "kernel", self.kernel_init, ("window", *self.axes), shape)
        return depthwise_convolution(x.astype(self.dtype), kernel.astype(self.dtype))


class SpanKey(nn.Module):
    """(B,L,D) -> (B,L,H,K): a token's surroundings, pointwise(depthwise(x)) (ConvBERT §3.3), or at some positions."""

    depthwise: nn.Module
    pointwise: nn.Module

    def __call__(self, x_BLD: jax.Array, positions_BR: jax.Array | None = None) -> jax.Array:
        return self.pointwise(take_tokens(self.depthwise(x_BLD), positions_BR))


def _kernels(generator: Callable[[jax.Array], jax.Array], source_BLHK: jax.Array) -> jax.Array:
    """(B,L,H,K) -> (B,L,H,W): softmax over W of generator(source), in float32."""
    logits_BLHW = generator(source_BLHK.reshape(*source_BLHK.shape[:2], -1))
    return jax.nn.softmax(logits_BLHW.astype(jnp.float32), axis=-1)


def _convolved(value_BLHJ: jax.Array, kernel_BLHW: jax.Array, positions_BR: jax.Array | None) -> jax.Array:
    """Values convolved with the kernels of all positions, or with those of `positions_BR` there."""
    if positions_BR is not None:
        return convolution_at(value_BLHJ, kernel_BLHW, positions_BR)
    return dynamic_convolution(value_BLHJ, kernel_BLHW.astype(value_BLHJ.dtype))


class SpanConvolution(nn.Module):
    """(B,L,D), query (B,L,H,K), mask (B,L) -> (B,L,H,J): values convolved with kernels of a token's span.

    kernel = softmax over W of kernel_generator(span_key(x) · query), from (B,L,H·K) to (B,L,H,W) (ConvBERT Eq. 4–5).
    `before_window` maps (B,L,...) and the mask before every window. With `positions_BR` query and output have only the
    tokens there.
    """

    span_key: nn.Module
    kernel_generator: nn.Module
    value: nn.Module
    before_window: BeforeWindow

    def __call__(
        self, x_BLD: jax.Array, query_BLHK: jax.Array, mask_BL: jax.Array, positions_BR: jax.Array | None = None
    ) -> jax.Array:
        source_BLHK = self.span_key(self.before_window(x_BLD, mask_BL), positions_BR) * query_BLHK
        kernel_BLHW = _kernels(self.kernel_generator, source_BLHK)
        return _convolved(self.before_window(self.value(x_BLD), mask_BL), kernel_BLHW, positions_BR)


class DynamicConvolution(nn.Module):
    """(B,L,D), query (B,L,H,K), mask (B,L) -> (B,L,H,J): gated values convolved with kernels of the token alone.

    y = value(x) · sigmoid(gate(x)), a gated linear unit (ConvBERT §3.1); kernel = softmax over W of kernel_generator(y)
    (ConvBERT Eq. 3, Wu et al. 2019). Nothing reads the query; the rest is as in `SpanConvolution`.
    """

    gate: nn.Module
    kernel_generator: nn.Module
    value: nn.Module
    before_window: BeforeWindow

    def __call__(
        self, x_BLD: jax.Array, query_BLHK: jax.Array, mask_BL: jax.Array, positions_BR: jax.Array | None = None
    ) -> jax.Array:
        gated_BLHJ = self.value(x_BLD) * jax.nn.sigmoid(self.gate(x_BLD))
        kernel_BLHW = _kernels(self.kernel_generator, take_tokens(gated_BLHJ, positions_BR))
        return _convolved(self.before_window(gated_BLHJ, mask_BL), kernel_BLHW, positions_BR)


class FixedConvolution(nn.Module):
    """(B,L,D), query (B,L,H,K), mask (B,L) -> (B,L,H,J): value(depthwise(x)), a depth-wise separable convolution.

    With `positions_BR` only those positions are returned.
    """

    depthwise: nn.Module
    value: nn.Module
    before_window: BeforeWindow

    def __call__(
        self, x_BLD: jax.Array, query_BLHK: jax.Array, mask_BL: jax.Array, positions_BR: jax.Array | None = None
    ) -> jax.Array:
        return self.value(take_tokens(self.depthwise(self.before_window(x_BLD, mask_BL)), positions_BR))
