"""A latency table of an imaginary device whose times are sums over operations."""

from bertzoo.benchmarking.latency import grid
from bertzoo.pruning.latency import LatencyTable, common, points
from bertzoo.pruning.structure import layer_sizes


def layer_time(sizes):
    """Milliseconds of one layer: sums of products of sizes."""
    h, f, a, k, v = (sizes.get(letter, 1) for letter in "hfakv")
    return 0.5 + 0.01 * h * f + 0.02 * h * a * k + 0.03 * h * a * v + 0.001 * a * (k + v) + 0.04 * h


def only_time(sizes):
    """Milliseconds of a one-layer encoder with embedding and head."""
    return 2 + 0.3 * layer_time(sizes) + 0.05 * sizes.get("h", 1) + 0.07 * sizes.get("e", 1)


def planted(model, letters=(), steps=3, noise=lambda: 1.0):
    """The table of a model, with every time multiplied by `noise()`."""
    sizes = grid(model, letters, steps)
    at = {point: dict(zip(sizes, point, strict=True)) for point in points(sizes)}
    own = layer_sizes(model)[0]
    one = {point: noise() * only_time(own | each) for point, each in at.items()}
    more = {point: noise() * layer_time(own | each) for point, each in at.items()}
    return LatencyTable(length=128, model=common(model, list(sizes)), sizes=sizes, single=one, further=more)
