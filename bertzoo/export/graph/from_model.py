"""Build the export graph of a Linen model; raises TypeError for modules without a counterpart in it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bertzoo import nn
from bertzoo.core.errors import UserError
from bertzoo.export.graph import layers as parts
from bertzoo.export.graph.layers import (
    AnyGraphLayer,
    Attention,
    Dynamic,
    Fixed,
    Graph,
    GraphBottleneckLayer,
    GraphEmbedding,
    GraphLayer,
    GraphPreNormLayer,
    GraphTrigram,
    Projection,
    SeparableMap,
)
from bertzoo.heads import head_class
from bertzoo.heads.base import GraphLayers
from bertzoo.models.compute import ACTIVATIONS
from bertzoo.models.partial import names

Params = Mapping[str, Any]
_EXPORTED: dict[Callable, Callable] = {ACTIVATIONS["gelu"]: parts.gelu, ACTIVATIONS["gelu_tanh"]: parts.gelu_tanh}
_WINDOWED = {nn.zero_padding: True, nn.keep_padding: False}
_ADVICE = "Add one to bertzoo/export/graph/from_model.py."


def build_graph(model: Any, params: Params) -> Graph:
    """Build the graph of a model, with numpy parameters."""
    layers: dict[str, Any] = {}
    for name, layer in zip(names(model.encoder.layers), model.encoder.layers, strict=True):
        if name not in layers:
            layers[name] = _layer(layer, params["encoder"][name])
    projection = model.encoder.projection
    return Graph(
        embedding=_embedding(model.embedding, params["embedding"]),
        projection=None if projection is None else _affine(projection, params["encoder"]["projection"]),
        layers=tuple(layers[name] for name in names(model.encoder.layers)),
        pooler=None if model.pooler is None else _affine(model.pooler, params["pooler"]),
        head=head_class(model).graph(model, params, _LAYERS),
    )


def _affine(module: Any, params: Params) -> Any:
    kernel = np.asarray(params["kernel"])
    bias = (
        np.asarray(params["bias"]).reshape(-1) if "bias" in params else np.zeros(np.prod(module.features), np.float32)
    )
    if isinstance(module, nn.Grouped):
        if kernel.shape[0] != 1 or module.stride != 1 or module.padding:
            raise UserError(
                f"the model's keys and values have kernel_size = {kernel.shape[0]} and stride = {module.stride}, but "
                "LiteRT files are written only for kernel_size = 1 and stride = 1. Use --to=onnx with one length."
            )
        if module.groups == 1:
            return parts.Affine(kernel=kernel[0], bias=bias)
        return parts.GroupedAffine(kernel=kernel[0], bias=bias, groups=module.groups)
    if not isinstance(module, nn.Dense):
        raise _unknown(module)
    return parts.Affine(kernel=kernel.reshape(-1, bias.size), bias=bias)


def _norm(module: Any, params: Params) -> Any:
    scale = np.asarray(params["scale"])
    bias = np.asarray(params["bias"]) if "bias" in params else np.zeros_like(scale)
    if isinstance(module, nn.LayerNorm):
        return parts.GraphLayerNorm(scale=scale, bias=bias, epsilon=module.epsilon)
    if isinstance(module, nn.NoNorm):
        return parts.GraphNoNorm(scale=scale, bias=bias)
    raise _unknown(module)


def _embedding(module: Any, params: Params) -> GraphEmbedding:
    transformation = None
    if isinstance(module.transformation, nn.Trigram):
        kernel_WED, bias = (np.asarray(params["transformation"][name]) for name in ("kernel", "bias"))
        dense = parts.Affine(kernel=kernel_WED.reshape(-1, bias.size), bias=bias)
        transformation = GraphTrigram(dense=dense, mask_padding=module.transformation.mask_padding)
    elif module.transformation is not None:
        raise _unknown(module.transformation)
    table = {
        name: np.asarray(params[name]["embedding"]) for name in ("word", "position", "token_type") if name in params
    }
    return GraphEmbedding(
        word=table["word"],
        position=table.get("position"),
        token_type=table.get("token_type"),
        transformation=transformation,
        norm=_norm(module.norm, params["norm"]),
    )


def _layer(module: Any, params: Params) -> AnyGraphLayer:
    if isinstance(module, nn.Layer):
        return GraphLayer(
            attention=_attention(module.attention, params["attention"]),
            attention_norm=_norm(module.attention_norm, params["attention_norm"]),
            feed_forward=_feed_forward(module.feed_forward, params["feed_forward"]),
            feed_forward_norm=_norm(module.feed_forward_norm, params["feed_forward_norm"]),
        )
    if isinstance(module, nn.PreNormLayer):
        norms = {name: _norm(getattr(module, name), params[name]) for name in params if name.endswith("norm")}
        return GraphPreNormLayer(
            attention=_attention(module.attention, params["attention"]),
            feed_forward=_feed_forward(module.feed_forward, params["feed_forward"]),
            attention_norm=norms.get("attention_norm"),
            feed_forward_norm=norms["feed_forward_norm"],
            output_norm=norms.get("output_norm"),
            bottleneck=None if module.bottleneck is None else _narrow(module.bottleneck, params["bottleneck"]),
            output=None if module.output is None else _affine(module.output, params["output"]),
        )
    if not isinstance(module, nn.BottleneckLayer):
        raise _unknown(module)
    shared = module.attention_input if isinstance(module.attention_input, nn.SharedBottleneck) else None
    if shared is None and module.attention_input not in (nn.from_stream, nn.from_bottleneck):
        raise _unknown(module.attention_input)
    numbered = range(len(module.feed_forward))
    return GraphBottleneckLayer(
        bottleneck=_narrow(module.bottleneck, params["bottleneck"]),
        shared=None if shared is None else _narrow(shared, params["attention_input"]),
        attention=_attention(module.attention, params["attention"], "source" if shared is None else "values"),
        attention_norm=_norm(module.attention_norm, params["attention_norm"]),
        feed_forwards=tuple(_feed_forward(module.feed_forward[i], params[f"feed_forward_{i}"]) for i in numbered),
        feed_forward_norms=tuple(
            _norm(module.feed_forward_norm[i], params[f"feed_forward_norm_{i}"]) for i in numbered
        ),
        output=_affine(module.output, params["output"]),
        output_norm=_norm(module.output_norm, params["output_norm"]),
        inside=module.attention_input is nn.from_bottleneck,
    )


def _narrow(module: Any, params: Params) -> parts.GraphBottleneck:
    return parts.GraphBottleneck(dense=_affine(module.dense, params["dense"]), norm=_norm(module.norm, params["norm"]))


def _feed_forward(module: Any, params: Params) -> parts.GraphFeedForward:
    if not isinstance(module, nn.FeedForward | nn.GatedFeedForward):
        raise _unknown(module)
    return parts.GraphFeedForward(
        intermediate=_affine(module.intermediate, params["intermediate"]),
        gate=_affine(module.gate, params["gate"]) if isinstance(module, nn.GatedFeedForward) else None,
        output=_affine(module.output, params["output"]),
        activation=_activation(module.activation),
    )


def _attention(module: Any, params: Params, values: str = "source") -> Attention:
    if not isinstance(module, nn.SelfAttention | nn.MixedAttention):
        raise _unknown(module)
    projections = [
        _projection(name, getattr(module, name), params[name], reads)
        for name, reads in (("query", "source"), ("key", "source"), ("value", values))
    ]
    convolution = getattr(module, "convolution", None)
    if convolution is not None:
        convolution, more = _convolution(convolution, params["convolution"])
        projections += more
    heads_, size = module.query.features
    rotary = isinstance(module, nn.RotaryAttention)
    return Attention(
        projections=tuple(projections),
        convolution=convolution,
        output=_affine(module.output, params["output"]),
        heads=int(heads_),
        scale=float(size) ** -0.5,
        theta=module.theta if rotary else None,
        reach=module.reach if rotary else None,
    )


def _projection(name: str, module: Any, params: Params, reads: str = "source") -> Projection:
    return Projection(map=_affine(module, params), name=name, reads=reads)


def _convolution(module: Any, params: Params) -> tuple[Dynamic | Fixed, Sequence[Projection]]:
    mask_padding = _WINDOWED[module.before_window]
    if isinstance(module, nn.FixedConvolution):
        return Fixed(
            separable=_separable(module.value, params["depthwise"], params["value"]), mask_padding=mask_padding
        ), []
    if not isinstance(module, nn.SpanConvolution | nn.DynamicConvolution):
        raise _unknown(module)
    projections, key = [_projection("convolved", module.value, params["value"])], None
    if isinstance(module, nn.DynamicConvolution):
        projections.append(_projection("gate", module.gate, params["gate"]))
    else:
        span_key = params["span_key"]
        key = _separable(module.span_key.pointwise, span_key["depthwise"], span_key["pointwise"])
    generator, window = module.kernel_generator, module.kernel_generator.features[-1]
    kernels = _affine(generator, params["kernel_generator"])
    return Dynamic(span_key=key, generator=kernels, window=window, mask_padding=mask_padding), projections


def _separable(pointwise: Any, depthwise_params: Params, pointwise_params: Params) -> SeparableMap:
    kernel = np.asarray(depthwise_params["kernel"])
    return SeparableMap(depthwise=kernel, pointwise=_affine(pointwise, pointwise_params))


def _activation(function: Callable) -> Callable:
    if function not in ACTIVATIONS.values():
        raise _unknown(function)
    return _EXPORTED.get(function, function)


def _unknown(module: Any) -> TypeError:
    name = getattr(module, "__name__", type(module).__name__)
    return TypeError(f"the export graph has no counterpart of {name}. {_ADVICE}")


_LAYERS = GraphLayers(affine=_affine, linear=parts.Affine, norm=_norm, activation=_activation)
