"""Convolutions along the token axis as sums of shifted slices, and ConvBERT's span, dynamic and fixed convolutions."""

from collections.abc import Callable, Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.parameter import parameter
from bertzoo.nn.positions import take_tokens

BeforeWindow = Callable[[jax.Array, jax.Array], jax.Array]


def _padded(x: jax.Array, window: int) -> jax.Array:
    """Pad the token axis of x (B,L,...) with W//2 zeros on both sides; raises ValueError if W, the window, is even."""
    if window % 2 == 0:
        raise ValueError(f"window = {window} has no middle. Use an odd number.")
    return jnp.pad(x, ((0, 0), (window // 2, window // 2), *[(0, 0)] * (x.ndim - 2)))


def _shifted(x: jax.Array, window: int) -> Iterator[jax.Array]:
    """Yield x (B,L,...) in float32, shifted for each w in [0, W), W = window: position t holds x[:, t + w - W//2]."""
    padded = _padded(x, window)
    for tap in range(window):
        yield padded[:, tap : tap + x.shape[1]].astype(jnp.float32)


def _over_taps(x: jax.Array, dy: jax.Array, window: int, axis: int | tuple[int, ...]) -> jax.Array:
    """Return the kernel's gradient (W,...): for each w, the sum over `axis` of dy · (x shifted by w as in `_shifted`).

    dy: gradient of the convolution's output. A loop runs over w; if it were unrolled, XLA would keep W copies of x.
    """
    padded = _padded(x, window)

    def tap(w: jax.Array) -> jax.Array:
        shifted = jax.lax.dynamic_slice_in_dim(padded, w, x.shape[1], axis=1)
        return jnp.sum(dy.astype(jnp.float32) * shifted, axis).astype(x.dtype)

    return jax.lax.map(tap, jnp.arange(window))


# Both custom_vjp functions below save only their inputs for the backward pass, no shifted copies. Their jitted names
# contain "convolution", by which flops.py recognises their multiplications.
@jax.custom_vjp
@jax.jit
def dynamic_convolution(value_BLHJ: jax.Array, kernel_BLHW: jax.Array) -> jax.Array:
    """Return y (B,L,H,J), convolved along L: y_t = Σ_w kernel_tw · value_(t+w-W//2) (Wu et al. 2019, §3).

    Every position and head has its own kernel of W weights. Values before and after the row are 0.
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
    """Return the outputs (B,R,H,J) of `dynamic_convolution` at R positions of each row, which have these kernels."""
    (batch, count), window = positions_BR.shape, kernel_BRHW.shape[-1]
    taps_BRW = positions_BR[:, :, None] + jnp.arange(window)
    values = take_tokens(_padded(value_BLHJ, window), taps_BRW.reshape(batch, count * window))
    value_BRWHJ = values.reshape(batch, count, window, *value_BLHJ.shape[2:]).astype(jnp.float32)
    kernel_BRWH = jnp.moveaxis(kernel_BRHW, -1, 2).astype(jnp.float32)
    return jnp.sum(kernel_BRWH[..., None] * value_BRWHJ, axis=2).astype(value_BLHJ.dtype)


@jax.custom_vjp
@jax.jit
def depthwise_convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolve x (B,L,*C) along L with a kernel (W,*C): y_t = Σ_w kernel_w · x_(t+w-W//2); x is 0 outside the row."""
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
    """Return x (B,L,...) with padding tokens set to 0, so that no convolution depends on how far a row is padded."""
    return jnp.where(jnp.expand_dims(mask_BL, tuple(range(2, x.ndim))) > 0, x, jnp.zeros((), x.dtype))


def keep_padding(x: jax.Array, mask_BL: jax.Array) -> jax.Array:
    """Return x unchanged, so that convolutions read padding tokens too, as in ConvBERT's code."""
    return x


class Depthwise(nn.Module):
    """A depth-wise convolution (B,L,*C) -> (B,L,*C) with kernel (window, *C), no bias; `axes` names the axes *C."""

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
    """Span-aware keys, pointwise(depthwise(x)) (ConvBERT §3.3): (B,L,D) -> (B,L,H,K), or (B,R,H,K) at R positions."""

    depthwise: nn.Module
    pointwise: nn.Module

    def __call__(self, x_BLD: jax.Array, positions_BR: jax.Array | None = None) -> jax.Array:
        return self.pointwise(take_tokens(self.depthwise(x_BLD), positions_BR))


def _kernels(generator: Callable[[jax.Array], jax.Array], source_BLHK: jax.Array) -> jax.Array:
    """Return convolution kernels of W weights: softmax over W of generator(source), (B,L,H,K) -> float32 (B,L,H,W)."""
    logits_BLHW = generator(source_BLHK.reshape(*source_BLHK.shape[:2], -1))
    return jax.nn.softmax(logits_BLHW.astype(jnp.float32), axis=-1)


def _convolved(value_BLHJ: jax.Array, kernel_BLHW: jax.Array, positions_BR: jax.Array | None) -> jax.Array:
    """Convolve at `positions_BR` only, with kernels (B,R,H,W), or at all positions if `positions_BR` is None."""
    if positions_BR is not None:
        return convolution_at(value_BLHJ, kernel_BLHW, positions_BR)
    return dynamic_convolution(value_BLHJ, kernel_BLHW.astype(value_BLHJ.dtype))


class SpanConvolution(nn.Module):
    """Span-based dynamic convolution (ConvBERT Eq. 4–5): x (B,L,D), query (B,L,H,K), mask (B,L) -> (B,L,H,J).

    value(x), (B,L,H,J), is convolved with kernel = softmax over W of kernel_generator(span_key(x) · query), where
    `kernel_generator` maps (B,L,H·K) to (B,L,H,W). `before_window`, applied before each convolution, is `zero_padding`
    or `keep_padding`. With `positions_BR`, the query has only these tokens, too.
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
    """Dynamic convolution of gated values: x (B,L,D), query (unused), mask (B,L) -> (B,L,H,J).

    y = value(x) · sigmoid(gate(x)), a gated linear unit (ConvBERT §3.1); kernel = softmax over W of kernel_generator(y)
    (ConvBERT Eq. 3, Wu et al. 2019). A kernel depends on one token. `before_window` is as in `SpanConvolution`.
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
    """A depth-wise separable convolution, value(depthwise(before_window(x))): (B,L,D) -> (B,L,H,J)."""

    depthwise: nn.Module
    value: nn.Module
    before_window: BeforeWindow

    def __call__(
        self, x_BLD: jax.Array, query_BLHK: jax.Array, mask_BL: jax.Array, positions_BR: jax.Array | None = None
    ) -> jax.Array:
        return self.value(take_tokens(self.depthwise(self.before_window(x_BLD, mask_BL)), positions_BR))
