"""Configs of attention heads: dense (BERT), grouped (SqueezeBERT), mixed (ConvBERT); `AttentionKind` is their union."""

from dataclasses import dataclass
from typing import Any, Literal

import flax.linen as nn

from bertzoo.core.errors import ConfigError
from bertzoo.models.parts import LayerFactory, check_divides, check_sizes
from bertzoo.nn import (
    Depthwise,
    Dropout,
    DynamicConvolution,
    FixedConvolution,
    MixedAttention,
    SelfAttention,
    SpanConvolution,
    SpanKey,
    TruncatedNormal,
    WindowedAttention,
    keep_padding,
    zero_padding,
)

Convolution = Literal["span", "dynamic", "fixed", "none"]


def layers_of(attention: SelfAttention) -> dict[str, Any]:
    """Return the linear layers and the dropout of an attention, by their names, for another kind of attention."""
    return {name: getattr(attention, name) for name in ("query", "key", "value", "output", "dropout")}


def check_odd(kernel_size: int) -> None:
    """Raise ConfigError for an even window, in which no token is in the middle."""
    if kernel_size % 2 == 0:
        raise ConfigError(f"kernel_size = {kernel_size} is even, so no token is in its middle. Use an odd size.")


@dataclass(frozen=True, kw_only=True)
class DenseHeads:
    """BERT's attention heads: dense layers for queries, keys, values and output."""

    kind: Literal["dense"] = "dense"

    def check(self, name: str, inputs: int, width: int, heads: int) -> None:
        """Raise ConfigError unless `heads` divides `width`. name: config key of `width`. inputs: not checked."""
        check_divides(name, width, heads=heads)

    def build(self, make: LayerFactory, width: int, heads: int, dropout: float) -> SelfAttention:
        """Build attention with outputs (B,L,width)."""
        return make.attention(width, heads, dropout)


@dataclass(frozen=True, kw_only=True)
class GroupedHeads:
    """SqueezeBERT's attention heads: grouped convolutions compute queries, keys, values and output.

    All windows are 1 in the paper (Iandola et al. 2020 §3). Keys and values may have larger ones, and a stride, because
    no residual connection adds them to their input.
    """

    kind: Literal["grouped"] = "grouped"
    query_groups: int = 4  # groups of the query projection
    key_groups: int = 4  # groups of the key projection
    value_groups: int = 4  # groups of the value projection
    output_groups: int = 1  # groups of the projection after the attention
    kernel_size: int = 1  # tokens from which a key and a value are computed
    dilation: int = 1  # distance between these tokens
    stride: int = 1  # distance between the tokens that have a key and a value

    def __post_init__(self):
        check_sizes(self)
        check_odd(self.kernel_size)
        if self.dilation > 1 and self.kernel_size == 1:
            raise ConfigError(
                f"dilation = {self.dilation} has no effect with kernel_size = 1. Use dilation = 1 or a larger "
                "kernel_size."
            )

    def check(self, name: str, inputs: int, width: int, heads: int) -> None:
        """Raise ConfigError unless `heads` and all numbers of groups divide `width`, whose config key is `name`.

        inputs: width of the attention's input; query_groups, key_groups and value_groups must divide it too.
        """
        groups = {"query_groups": self.query_groups, "key_groups": self.key_groups, "value_groups": self.value_groups}
        check_divides(name, width, heads=heads, **groups, output_groups=self.output_groups)
        check_divides("the attention's input width", inputs, **groups)

    def build(self, make: LayerFactory, width: int, heads: int, dropout: float) -> SelfAttention:
        """Build attention with outputs (B,L,width)."""
        split = (heads, width // heads)
        padding = self.dilation * (self.kernel_size // 2)
        window = {"window": self.kernel_size, "stride": self.stride, "dilation": self.dilation, "padding": padding}
        layers = {
            "query": make.grouped(split, self.query_groups),
            "key": make.grouped(split, self.key_groups, **window),
            "value": make.grouped(split, self.value_groups, **window),
            "output": make.grouped(width, self.output_groups),
            "dropout": Dropout(dropout),
        }
        if self.kernel_size == self.stride == 1:
            return SelfAttention(**layers)
        return WindowedAttention(**layers, stride=self.stride)


@dataclass(frozen=True, kw_only=True)
class MixedHeads:
    """ConvBERT's heads: heads / head_ratio attention heads and the same number of convolution heads.

    Each head is width / heads wide (Jiang et al. 2020 §3). For heads = 12, a head_ratio of 2 gives 6 + 6 heads, and a
    head_ratio of 4 gives 3 + 3. With convolution = "none", kernel_size and mask_padding must keep their defaults.
    """

    kind: Literal["mixed"] = "mixed"
    head_ratio: int = 2  # heads / head_ratio heads attend, and as many convolve
    # input that determines a kernel: the span around a token (§3.3), the token alone (dynamic), or nothing (fixed);
    # none: no heads convolve
    convolution: Convolution = "span"
    kernel_size: int = 9  # tokens that a kernel covers
    # zero the padding before every convolution, so that it cannot leak into tokens; the released models do not
    mask_padding: bool = True

    def __post_init__(self):
        check_sizes(self)
        check_odd(self.kernel_size)
        for name in ("kernel_size", "mask_padding") if self.convolution == "none" else ():
            value, default = (str(getattr(table, name)).lower() for table in (self, MixedHeads))
            if value != default:
                raise ConfigError(
                    f'{name} = {value} has no effect with convolution = "none". Leave {name} at {default}.'
                )

    @property
    def padding_seen(self) -> int:
        """Number of padding tokens that affect a row's last token through the convolution of one layer."""
        return 0 if self.mask_padding or self.convolution == "none" else self.kernel_size // 2

    def check(self, name: str, inputs: int, width: int, heads: int) -> None:
        """Raise ConfigError unless `heads` divides `width`, the value of the key `name`; check head_ratio."""
        check_divides(name, width, heads=heads)
        if self.head_ratio > max(2, heads):  # with the paper's ratio of 2, a single head remains
            raise ConfigError(f"head_ratio = {self.head_ratio} is more than heads = {heads}. Use a smaller ratio.")

    def build(self, make: LayerFactory, width: int, heads: int, dropout: float) -> SelfAttention:
        """Build attention with outputs (B,L,width)."""
        split = max(1, heads // self.head_ratio), width // heads
        attention = make.attention(width, split[0], dropout, (split[1], split[1]))
        if self.convolution == "none":
            return attention
        return MixedAttention(**layers_of(attention), convolution=self._convolution(make, split))

    def _convolution(self, make: LayerFactory, split: tuple[int, int]) -> nn.Module:
        value, projection = (make.dense(split, "model", "heads", "head_size") for _ in range(2))
        generator = make.dense((split[0], self.kernel_size), "model", "heads", "window")
        depthwise = Depthwise(
            window=self.kernel_size,
            axes=("model",),
            kernel_init=TruncatedNormal(1 / self.kernel_size),  # as in ConvBERT's code
            dtype=make.compute.jax_dtype,
        )
        shared: Any = {"value": value, "before_window": zero_padding if self.mask_padding else keep_padding}
        match self.convolution:
            case "fixed":
                return FixedConvolution(depthwise=depthwise, **shared)
            case "dynamic":
                return DynamicConvolution(gate=projection, kernel_generator=generator, **shared)
        key = SpanKey(depthwise=depthwise, pointwise=projection)
        return SpanConvolution(span_key=key, kernel_generator=generator, **shared)


AttentionKind = DenseHeads | GroupedHeads | MixedHeads
