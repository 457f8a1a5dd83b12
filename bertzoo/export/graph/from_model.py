"""Build the export graph of a Linen model; raises TypeError for modules without a counterpart in it.

The graph has fewer or cheaper operations than the model. The projection to queries includes the scale of attention
scores, and the layer or the tables before a NoNorm include the NoNorm. A grouped layer is a linear layer per group. If
the head reads only the first token, the last layer computes only that. Queries, keys and values have projections of
their own: one joint projection takes 0.96 to 1.02 times as long.

`scale_branches` changes a graph so that the grid of an int8 file holds all channels.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertzoo import nn
from bertzoo.core.errors import UserError
from bertzoo.export.graph import layers as graph_layers
from bertzoo.export.graph.layers import (
    Attention,
    Concat,
    Dynamic,
    Fixed,
    Graph,
    GraphEmbedding,
    GraphLayer,
    GraphTrigram,
    GroupedAttention,
    SeparableConvolution,
    float32,
    scaled,
)
from bertzoo.heads import head_class
from bertzoo.heads.base import GraphLayers
from bertzoo.models.compute import ACTIVATIONS
from bertzoo.models.partial import names

Params = Mapping[str, Any]
_EXPORTED: dict[Callable, Callable] = {
    ACTIVATIONS["gelu"]: graph_layers.gelu,
    ACTIVATIONS["gelu_tanh"]: graph_layers.gelu_tanh,
}
_WINDOWED = {nn.zero_padding: True, nn.keep_padding: False}


def build_graph(model: Any, params: Params) -> Graph:
    """Build the graph of a model, with numpy parameters."""
    by_name: dict[str, Any] = {}  # ALBERT's layers share parameters
    for name, layer in zip(names(model.encoder.layers), model.encoder.layers, strict=True):
        if name not in by_name:
            by_name[name] = _layer(layer, params["encoder"][name])
    make = GraphLayers(affine=_affine, linear=graph_layers.Affine, norm=_norm, activation=_activation)
    projection, head = model.encoder.projection, head_class(model)
    layers = [by_name[name] for name in names(model.encoder.layers)]
    if model.reads_first:
        layers[-1] = layers[-1].replace(first=True)
    return Graph(
        embedding=_embedding(model.embedding, params["embedding"]),
        projection=None if projection is None else _affine(projection, params["encoder"]["projection"]),
        layers=tuple(layers),
        pooler=None if model.pooler is None else _affine(model.pooler, params["pooler"]),
        head=head.graph(model, params, make),
        more_inputs=head.inputs,
    )


def _affine(module: Any, params: Params) -> Any:
    """Return a linear layer or, for a module in groups, a Concat of a linear layer per group."""
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
        groups = zip(*(np.split(x, module.groups, axis=-1) for x in (kernel[0], bias)), strict=True)
        layers = tuple(graph_layers.Affine(kernel=float32(kernel), bias=bias) for kernel, bias in groups)
        return layers[0] if len(layers) == 1 else Concat(layers=layers)
    if not isinstance(module, nn.Dense):
        raise _unknown(module)
    return graph_layers.Affine(kernel=kernel.reshape(-1, bias.size), bias=bias)


def _norm(module: Any, params: Params) -> Any:
    scale = np.asarray(params["scale"])
    bias = np.asarray(params["bias"]) if "bias" in params else np.zeros_like(scale)
    if not isinstance(module, nn.LayerNorm):
        raise _unknown(module)
    return graph_layers.GraphLayerNorm(scale=scale, bias=bias, epsilon=module.epsilon)


def _residual(branch: Any, norm: Any, params: Params) -> tuple[Any, Any]:
    """Return a residual branch, and the residual connection with the norm after it.

    A NoNorm is folded into the branch, except for the scale of the residual.
    """
    if not isinstance(norm, nn.NoNorm):
        return branch, _norm(norm, params)
    return scaled(branch, params["scale"], params["bias"]), graph_layers.Residual(scale=np.asarray(params["scale"]))


def _embedding(module: Any, params: Params) -> GraphEmbedding:
    table = {
        name: np.asarray(params[name]["embedding"]) for name in ("word", "position", "token_type") if name in params
    }
    transformation = None
    if isinstance(module.transformation, nn.Trigram):
        kernel_WED, bias = (np.asarray(params["transformation"][name]) for name in ("kernel", "bias"))
        dense = graph_layers.Affine(kernel=kernel_WED.reshape(-1, bias.size), bias=bias)
        transformation = GraphTrigram(dense=dense, mask_padding=module.transformation.mask_padding)
    elif module.transformation is not None:
        raise _unknown(module.transformation)
    folded = isinstance(module.norm, nn.NoNorm)
    if folded:
        scale, bias = (np.asarray(params["norm"][name], np.float64) for name in ("scale", "bias"))
        if transformation is not None:
            transformation = transformation.replace(dense=scaled(transformation.dense, scale))
        else:
            table["word"] = float32(table["word"] * scale)
        table["position"] = float32(table["position"] * scale + bias)
        if "token_type" in table:
            table["token_type"] = float32(table["token_type"] * scale)
    return GraphEmbedding(
        word=table["word"],
        position=table.get("position"),
        token_type=table.get("token_type"),
        transformation=transformation,
        norm=None if folded else _norm(module.norm, params["norm"]),
    )


def _layer(module: Any, params: Params) -> GraphLayer:
    if not isinstance(module, nn.Layer | nn.PreNormLayer | nn.BottleneckLayer):
        raise _unknown(module)
    attention = _attention(module.attention, params["attention"])
    if isinstance(module, nn.PreNormLayer):
        norms = {name: _norm(getattr(module, name), params[name]) for name in params if name.endswith("norm")}
        return GraphLayer(
            **norms,
            attention=attention,
            feed_forwards=(_feed_forward(module.feed_forward, params["feed_forward"]),),
            bottleneck=None if module.bottleneck is None else _bottleneck(module.bottleneck, params["bottleneck"]),
            output=None if module.output is None else _affine(module.output, params["output"]),
            inside=True,
        )
    attention, attention_sum = _residual(attention, module.attention_norm, params["attention_norm"])
    if isinstance(module, nn.Layer):
        feed_forward = _feed_forward(module.feed_forward, params["feed_forward"])
        feed_forward, feed_forward_sum = _residual(feed_forward, module.feed_forward_norm, params["feed_forward_norm"])
        return GraphLayer(
            attention=attention,
            attention_sum=attention_sum,
            feed_forwards=(feed_forward,),
            feed_forward_sums=(feed_forward_sum,),
        )
    shared = module.attention_input if isinstance(module.attention_input, nn.SharedBottleneck) else None
    if shared is None and module.attention_input not in (nn.from_stream, nn.from_bottleneck):
        raise _unknown(module.attention_input)
    feed_forwards, feed_forward_sums = zip(
        *(
            _residual(_feed_forward(network, params[f"feed_forward_{i}"]), norm, params[f"feed_forward_norm_{i}"])
            for i, (network, norm) in enumerate(zip(module.feed_forward, module.feed_forward_norm, strict=True))
        ),
        strict=True,
    )
    output, output_sum = _residual(_affine(module.output, params["output"]), module.output_norm, params["output_norm"])
    return GraphLayer(
        bottleneck=_bottleneck(module.bottleneck, params["bottleneck"]),
        shared=None if shared is None else _bottleneck(shared, params["attention_input"]),
        attention=attention,
        attention_sum=attention_sum,
        feed_forwards=feed_forwards,
        feed_forward_sums=feed_forward_sums,
        output=output,
        output_sum=output_sum,
        inside=module.attention_input is nn.from_bottleneck,
    )


def _bottleneck(module: Any, params: Params) -> Any:
    dense = _affine(module.dense, params["dense"])
    if isinstance(module.norm, nn.NoNorm):
        return scaled(dense, params["norm"]["scale"], params["norm"]["bias"])
    return graph_layers.GraphBottleneck(dense=dense, norm=_norm(module.norm, params["norm"]))


def _feed_forward(module: Any, params: Params) -> Any:
    if not isinstance(module, nn.FeedForward | nn.GatedFeedForward):
        raise _unknown(module)
    layers = {
        name: _affine(getattr(module, name), params[name])
        for name in ("intermediate", "gate", "output")
        if name in params
    }
    whole = graph_layers.GraphFeedForward(**layers, activation=_activation(module.activation))
    groups = _by_group(layers)
    return Concat(layers=tuple(whole.replace(**group) for group in groups)) if groups else whole


def _by_group(layers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the layers of each group, or nothing unless all `layers` are in equally many groups.

    A network for each group needs fewer concatenations than layers in groups.
    """
    if {type(x) for x in layers.values()} != {Concat} or len({len(x.layers) for x in layers.values()}) > 1:
        return []
    return [dict(zip(layers, group, strict=True)) for group in zip(*(x.layers for x in layers.values()), strict=True)]


def _attention(module: Any, params: Params) -> Attention | GroupedAttention:
    if not isinstance(module, nn.SelfAttention):
        raise _unknown(module)
    heads, size = module.query.features
    scale, rotary = float(size) ** -0.5, isinstance(module, nn.RotaryAttention)
    projections = {name: _affine(getattr(module, name), params[name]) for name in ("query", "key", "value")}
    projections["query"] = scaled(projections["query"], np.full(heads * size, scale))
    convolution = None
    if module.convolution is not None:
        convolution = _convolution(module.convolution, params["convolution"], scale)
    output = _affine(module.output, params["output"])
    whole = Attention(
        **projections,
        convolution=convolution,
        output=output,
        heads=int(heads),
        theta=module.theta if rotary else None,
        reach=module.reach if rotary else None,
    )
    groups = _by_group(projections) if convolution is None else []
    if not groups or whole.heads % len(groups):
        return whole
    attentions = (whole.replace(**group, output=None, heads=whole.heads // len(groups)) for group in groups)
    return GroupedAttention(groups=tuple(attentions), output=output)


def _convolution(module: Any, params: Params, scale: float) -> Dynamic | Fixed:
    """Return the convolution heads of an attention.

    scale: factor of the queries. ConvBERT multiplies them by the span key, whose projection is divided by the factor.
    """
    mask_padding = _WINDOWED[module.before_window]
    if isinstance(module, nn.FixedConvolution):
        separable = _separable(module.value, params["depthwise"], params["value"])
        return Fixed(separable=separable, mask_padding=mask_padding)
    if not isinstance(module, nn.SpanConvolution | nn.DynamicConvolution):
        raise _unknown(module)
    gate, key = None, None
    if isinstance(module, nn.DynamicConvolution):
        gate = _affine(module.gate, params["gate"])
    else:
        span_key = params["span_key"]
        key = _separable(module.span_key.pointwise, span_key["depthwise"], span_key["pointwise"])
        divisors = np.full(np.prod(module.span_key.pointwise.features), scale)
        key = key.replace(pointwise=scaled(key.pointwise, 1 / divisors))
    return Dynamic(
        value=_affine(module.value, params["value"]),
        gate=gate,
        span_key=key,
        generator=_affine(module.kernel_generator, params["kernel_generator"]),
        window=module.kernel_generator.features[-1],
        mask_padding=mask_padding,
    )


def _separable(pointwise: Any, depthwise_params: Params, pointwise_params: Params) -> SeparableConvolution:
    kernel = np.asarray(depthwise_params["kernel"])
    return SeparableConvolution(depthwise=kernel, pointwise=_affine(pointwise, pointwise_params))


def _activation(function: Callable) -> Callable:
    if function not in ACTIVATIONS.values():
        raise _unknown(function)
    return _EXPORTED.get(function, function)


def _unknown(module: Any) -> TypeError:
    name = getattr(module, "__name__", type(module).__name__)
    return TypeError(f"the export graph has no counterpart of {name}. Add one to bertzoo/export/graph/from_model.py.")


def scale_branches(graph: Graph, rows: Iterable[Mapping[str, np.ndarray]]) -> Graph:
    """Divide each channel of every branch by its scale over `rows` (MeasuredBranch); a ScaledBranch multiplies by it.

    A branch is the output of an attention, a feed-forward or a bottleneck layer, before its sum with the residual. In
    BERTs, a few of its channels are a hundred times larger than all others. On a grid of 255 steps for all channels,
    the others are rounded to a few steps. rows: inputs (1,L) for int8-static's calibration, of any lengths L.
    """
    scales = _branch_scales(graph, rows)
    outputs: dict[int, Any] = {}  # scaled output layers, which layers with shared parameters (ALBERT) share

    def scaled_branch(branch: Any, norm: Any) -> tuple[Any, Any]:
        number = _number(branch)
        scale = scales[number]
        if hasattr(branch, "output"):
            outputs.setdefault(number, scaled(branch.output, 1 / scale))
            branch = branch.replace(output=outputs[number])
        else:
            branch = scaled(branch, 1 / scale)
        return branch, graph_layers.ScaledBranch(norm=norm, scale=float32(scale))

    return _replace_branches(graph, scaled_branch)


def _branch_scales(graph: Graph, rows: Iterable[Mapping[str, np.ndarray]]) -> dict[int, np.ndarray]:
    """Return the scale (D) of each residual branch over `rows`, by its `_number`.

    No channel has less than a millionth of the largest; if all are 0, they have 1.
    """
    largest: dict[int, jax.Array] = {}

    def note(number: int, channels: jax.Array) -> None:
        largest[number] = jnp.maximum(largest.get(number, 0.0), channels)  # layers with shared parameters share it

    def measure(graph: Graph, row: Mapping[str, jax.Array]) -> dict[int, jax.Array]:
        largest.clear()
        graph(**{name: array[0] for name, array in row.items()})
        return dict(largest)

    def measured_branch(branch: Any, norm: Any) -> tuple[Any, Any]:
        return branch, graph_layers.MeasuredBranch(norm=norm, number=_number(branch), note=note)

    run = jax.jit(measure)
    observed = jax.device_put(_replace_branches(graph, measured_branch))
    results = [jax.device_get(run(observed, dict(row))) for row in rows]
    maxima = {number: np.max([result[number] for result in results], axis=0) for number in results[0]}
    return {number: np.maximum(x, 1e-6 * x.max()) if x.any() else np.ones_like(x) for number, x in maxima.items()}


def _number(branch: Any) -> int:
    """Return a number that identifies the linear layer from which a residual branch comes."""
    return id(getattr(branch, "output", branch))


def _replace_branches(graph: Graph, function: Callable[[Any, Any], tuple[Any, Any]]) -> Graph:
    """Replace each residual branch, and the norm after it, by function(branch, norm).

    Layers with shared parameters (ALBERT) are replaced once.
    """
    replaced: dict[int, Any] = {}
    for layer in graph.layers:
        if id(layer) in replaced:
            continue
        changes = {}
        for name in ("attention", "output"):
            if (branch := getattr(layer, name)) is not None:
                changes[name], changes[f"{name}_sum"] = function(branch, getattr(layer, f"{name}_sum"))
        pairs = map(function, layer.feed_forwards, layer.feed_forward_sums)
        changes["feed_forwards"], changes["feed_forward_sums"] = zip(*pairs, strict=True)
        replaced[id(layer)] = layer.replace(**changes)
    return graph.replace(layers=tuple(replaced[id(layer)] for layer in graph.layers))
