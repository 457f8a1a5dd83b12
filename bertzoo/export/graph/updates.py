"""Scale the updates of a graph, so that the grid of an int8 file holds all channels."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertzoo.export.graph import layers
from bertzoo.export.graph.layers import Graph, GraphBottleneckLayer, GraphPreNormLayer


def scale_updates(graph: Graph, rows: Iterable[Mapping[str, np.ndarray]]) -> Graph:
    """Divide each channel of every update by its scale over `rows` (MeasuredUpdate); ScaledUpdates multiply by it.

    An update is what an attention, a feed-forward or a bottleneck layer's output map adds to the residual. BERTs have a
    few channels whose updates are a hundred times larger than all others. On a grid of 255 steps for all channels, the
    others are rounded to a few steps. rows: inputs (1,L) for int8-static's calibration, of any lengths L.
    """
    scales = _update_scales(graph, rows)
    outputs: dict[int, Any] = {}  # scaled output maps; layers that share a map (ALBERT) share its scaled copy

    def scaled(part: Any, norm: Any) -> tuple[Any, Any]:
        place = _place(part)
        scale = scales[place]
        if hasattr(part, "output"):
            outputs.setdefault(place, layers.scaled(part.output, 1 / scale))
            part = part.replace(output=outputs[place])
        else:
            part = layers.scaled(part, 1 / scale)
        return part, layers.ScaledUpdate(norm=norm, scale=layers.float32(scale))

    return _each_update(graph, scaled)


def _update_scales(graph: Graph, rows: Iterable[Mapping[str, np.ndarray]]) -> dict[int, np.ndarray]:
    """Return the scale (D) of each update over `rows`, by the `_place` of the part that computes it.

    No channel has less than a millionth of the largest; if all are 0, they have 1.
    """
    seen: dict[int, jax.Array] = {}

    def note(place: int, channels: jax.Array) -> None:
        seen[place] = jnp.maximum(seen.get(place, 0.0), channels)  # layers that share a map share its place

    def measure(graph: Graph, row: Mapping[str, jax.Array]) -> dict[int, jax.Array]:
        seen.clear()
        graph(**{name: array[0] for name, array in row.items()})
        return dict(seen)

    def measured(part: Any, norm: Any) -> tuple[Any, Any]:
        return part, layers.MeasuredUpdate(norm=norm, place=_place(part), note=note)

    run = jax.jit(measure)
    observed = jax.device_put(_each_update(graph, measured))
    results = [jax.device_get(run(observed, dict(row))) for row in rows]
    maxima = {place: np.max([result[place] for result in results], axis=0) for place in results[0]}
    return {place: np.maximum(x, 1e-6 * x.max()) if x.any() else np.ones_like(x) for place, x in maxima.items()}


def _place(part: Any) -> int:
    """Return a number that identifies the map from which an update comes."""
    return id(getattr(part, "output", part))


def _each_update(graph: Graph, function: Callable[[Any, Any], tuple[Any, Any]]) -> Graph:
    """Replace each part that computes an update, and the norm after it, by function(part, norm).

    Layers with shared parameters (ALBERT) are mapped once.
    """
    mapped: dict[int, Any] = {}
    for layer in graph.layers:
        if id(layer) in mapped:
            continue
        after, changes = "sum" if isinstance(layer, GraphPreNormLayer) else "norm", {}
        for name in ("attention", "feed_forward", "output"):
            if (part := getattr(layer, name, None)) is not None:
                changes[name], changes[f"{name}_{after}"] = function(part, getattr(layer, f"{name}_{after}"))
        if isinstance(layer, GraphBottleneckLayer):
            pairs = map(function, layer.feed_forwards, layer.feed_forward_norms)
            changes["feed_forwards"], changes["feed_forward_norms"] = zip(*pairs, strict=True)
        mapped[id(layer)] = layer.replace(**changes)
    return graph.replace(layers=tuple(mapped[id(layer)] for layer in graph.layers))
