"""Simulated int8 arithmetic: the forward pass of a model whose dense maps LiteRT quantises (Jacob et al. 2018).

The same tensors are rounded, to the same grids, as by `--precision=int8-static` (export/litert/quantise.py):

- kernels: a symmetric grid per output channel;
- word and token-type embeddings: a symmetric grid per row;
- inputs and outputs of dense maps: an asymmetric grid per tensor or, for grouped maps, per group;
- updates, the outputs of attentions and feed-forwards that are added to a residual: a grid per channel, with zero
  point 0.

Attention scores, norms, activation functions and sums stay in float.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import traverse_util

from bertzoo.nn.dense import Dense, DensePair, Grouped
from bertzoo.nn.embedding import Table, Trigram

RANGES = "int8_ranges"  # the parameters' part with the activations' ranges
RATE = 0.1  # weight of a step's batch in the moving average of the ranges
# Factor of the ranges' gradients. A power of two, so exact; so small that it does not show in the gradient's norm.
GRADIENT = 2.0**-30
LOW, HIGH = -128, 127
UPDATES = (("attention", "output"), ("feed_forward", "output"))  # ends of the paths of maps that compute updates
NARROWEST = 1e-9  # least width of a range, as in LiteRT's quantiser


def fake_weights(weights: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Return float32 weights rounded to a symmetric int8 grid of -127 to 127 for each channel.

    axes: the axes within a channel; all weights along them share one grid. The gradient passes unchanged
    (straight-through; Jacob et al. 2018, §3.1).
    """
    weights = weights.astype(jnp.float32)
    largest = jnp.max(jnp.abs(weights), axis=axes, keepdims=True)
    scale = jnp.maximum(largest, NARROWEST) / HIGH
    rounded = jnp.clip(jnp.round(weights / scale), -HIGH, HIGH) * scale
    return weights + jax.lax.stop_gradient(rounded - weights)


def int8_grid(range_G2: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return scales and zero points, (G,1) each, of G int8 grids.

    range_G2: lowest and highest value of each grid; the range is widened to hold 0.
    """
    low_G1, high_G1 = jnp.minimum(range_G2[:, :1], 0.0), jnp.maximum(range_G2[:, 1:], 0.0)
    scale_G1 = jnp.maximum(high_G1 - low_G1, NARROWEST) / (HIGH - LOW)
    return scale_G1, jnp.round(LOW - low_G1 / scale_G1)


def update_scale(x: jax.Array, axis: int) -> jax.Array:
    """Return 127 times the step of the finest grid that has zero point 0 and holds x; `axis` is reduced."""
    return jnp.max(jnp.maximum(x, x * (HIGH / LOW)), axis=axis)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def fake_activations(x: jax.Array, range_G2: jax.Array, observed_G2: jax.Array, parts: int) -> jax.Array:
    """Return float32 x (..., G, I), rounded to the asymmetric int8 grid of each of G groups and clipped to its range.

    range_G2: lowest and highest value of each group; a range of zeros is replaced by the group's `observed_G2`.
    observed_G2: the ranges in this microbatch.
    parts: number of microbatches whose gradients are summed.

    The gradient of x passes where x is inside the range, and is 0 outside. The gradient of `range_G2` is no derivative,
    but GRADIENT · rate · (range - observed) / parts. So `range -= gradient / GRADIENT` makes the range a moving average
    of the observed ranges. The rate is 1 if the range is empty. Otherwise it is 0 if the observed range is empty, as in
    a microbatch of padding, and else RATE. A range is empty if its ends are equal. If some but not all microbatches of
    the first step are padding, its range is too narrow by their share.
    """
    return _fake_activations(x, range_G2, observed_G2, parts)[0]


def _fake_activations(x: jax.Array, range_G2: jax.Array, observed_G2: jax.Array, parts: int) -> tuple[Any, Any]:
    scale_G1, zero_G1 = int8_grid(jnp.where(_is_empty(range_G2), observed_G2, range_G2))
    steps = jnp.round(x / scale_G1) + zero_G1
    clipped = jnp.clip(steps, LOW, HIGH)
    return (clipped - zero_G1) * scale_G1, (steps == clipped, range_G2, observed_G2)


def _backward(parts: int, residuals: Any, change: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    inside, range_G2, observed_G2 = residuals
    rate_G1 = jnp.where(_is_empty(range_G2), 1.0, jnp.where(_is_empty(observed_G2), 0.0, RATE))
    change_G2 = GRADIENT / parts * rate_G1 * (range_G2 - observed_G2)
    return jnp.where(inside, change, 0.0), change_G2, jnp.zeros_like(observed_G2)


fake_activations.defvjp(_fake_activations, _backward)


def _is_empty(range_G2: jax.Array) -> jax.Array:
    return range_G2[:, 1:] <= range_G2[:, :1]


def observe(x_BXGI: jax.Array, weight_B: jax.Array) -> jax.Array:
    """Return ranges (G,2): each group's lowest and highest value in the rows whose `weight_B` is not 0.

    LiteRT's ranges are the extremes of the calibration texts. Without such a row, ranges are 0.
    """
    counted_B111 = (weight_B > 0)[:, None, None, None]
    low_G = jnp.min(x_BXGI, (0, 1, 3), where=counted_B111, initial=jnp.inf)
    high_G = jnp.max(x_BXGI, (0, 1, 3), where=counted_B111, initial=-jnp.inf)
    return jnp.where(jnp.any(weight_B > 0), jnp.stack([low_G, high_G], axis=-1), 0.0)


@dataclass(frozen=True)
class Int8Model:
    """A Linen `model` in simulated int8, with the methods `init` and `apply` of a Linen model.

    It computes what the int8 file of a `bert` or a `squeezebert` does. Bottleneck layers have updates of other names
    than UPDATES.

    The parameters have one more entry than the model's, RANGES: a range (G,2) for each input and output of a dense map,
    initially 0. G is 1, the number of a map's groups or, for an update, of its channels. Without this entry, `apply`
    takes every range from its batch.

    parts: number of microbatches of a step.
    """

    model: Any
    parts: int = 1

    def init(self, *args: Any) -> dict[str, Any]:
        """Return the model's initial variables, with RANGES among the parameters."""
        simulation = _Simulation({}, jnp.ones(1), self.parts)
        with nn.intercept_methods(simulation):
            variables = self.model.init(*args)
        ranges = {
            place: nn.LogicallyPartitioned(jnp.zeros((groups, 2)), (None, None))
            for place, groups in simulation.groups.items()
        }
        return {"params": {**variables["params"], RANGES: traverse_util.unflatten_dict(ranges)}}

    def apply(
        self,
        variables: dict[str, Any],
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        attention_mask: jax.Array,
        *more: Any,
        **options: Any,
    ) -> Any:
        """Return the model's output in simulated int8; rows that hold only padding do not affect the ranges."""
        params = dict(variables["params"])
        ranges = cast(dict[tuple[str, ...], jax.Array], traverse_util.flatten_dict(params.pop(RANGES, {})))
        weight_B = jnp.any(attention_mask > 0, axis=1).astype(jnp.float32)
        with nn.intercept_methods(_Simulation(ranges, weight_B, self.parts)):
            inputs = (input_ids, token_type_ids, attention_mask)
            return self.model.apply({**variables, "params": params}, *inputs, *more, **options)


@dataclass
class _Simulation:
    """Intercepts the method calls of a Linen model, to round dense maps and embedding tables to int8.

    A place identifies an input or output of a dense map: the map's path, the number of the call (layers may share a
    map), and "input_0", "input_1" or "output".

    ranges: {place: range (G,2)}.
    weight_B: 1 for rows that count in observed ranges, else 0.
    parts: number of microbatches of a step.
    groups: {place: number of groups}, for the places so far.
    calls: {path of a dense map: number of its last call, from 0}.
    """

    ranges: dict[tuple[str, ...], jax.Array]
    weight_B: jax.Array
    parts: int
    groups: dict[tuple[str, ...], int] = field(default_factory=dict)
    calls: dict[tuple[str, ...], int] = field(default_factory=dict)

    def __call__(self, call: Callable, args: tuple, kwargs: dict[str, Any], context: Any) -> Any:
        module = context.module
        if context.method_name != "__call__" or not module.path:  # without a path: a clone of _multiply
            return call(*args, **kwargs)
        if isinstance(module, Table):
            y = call(*args, **kwargs)
            return y if module.name == "position" else fake_weights(y, (-1,))  # the file adds positions as a constant
        if not isinstance(module, Dense | DensePair | Grouped | Trigram):
            return call(*args, **kwargs)
        self.calls[module.path] = number = self.calls.get(module.path, -1) + 1
        place = (*module.path, str(number))
        groups = module.groups if isinstance(module, Grouped) else 1
        inputs = 2 if isinstance(module, DensePair) else 1
        rounded = [self._round(x, (*place, f"input_{index}"), groups) for index, x in enumerate(args[:inputs])]
        y = call(*args, **kwargs) if module.is_initializing() else _multiply(module, *rounded, *args[inputs:])
        update = module.path[-2:] in UPDATES
        return self._round(y, (*place, "output"), y.shape[-1] if update else groups, centred=update)

    def _round(self, x: jax.Array, place: tuple[str, ...], groups: int, centred: bool = False) -> jax.Array:
        self.groups[place] = groups
        axes = 2 if groups > 1 else 1  # with several ranges x is (B,L,*C); one range may be of all axes
        x_BXGI = x.astype(jnp.float32).reshape(*x.shape[:axes], *[1] * (2 - axes), groups, -1)
        observed_G2 = jax.lax.stop_gradient(observe(x_BXGI, self.weight_B))
        if centred:
            observed_G2 = update_scale(observed_G2, axis=1)[:, None] * jnp.array([LOW / HIGH, 1.0])
        range_G2 = self.ranges.get(place, jnp.zeros((groups, 2)))
        rounded = cast(jax.Array, fake_activations(x_BXGI, range_G2, observed_G2, self.parts))
        return rounded.reshape(x.shape).astype(x.dtype)


def _multiply(module: Any, *args: jax.Array) -> jax.Array:
    """Apply a copy of the dense map `module`, with its kernel rounded to int8, to `args`."""
    kernel = module.variables["params"]["kernel"]
    if isinstance(module, DensePair):  # the file multiplies each half apart
        halves = kernel.reshape(2, -1, module.features)
        kernel = fake_weights(halves, (1,)).reshape(kernel.shape)
    else:
        outputs = len(module.features) if isinstance(module, Dense) else 1
        kernel = fake_weights(kernel, tuple(range(kernel.ndim - outputs)))
    params = {**module.variables["params"], "kernel": kernel}
    return cast(jax.Array, module.clone(parent=None).apply({"params": params}, *args))
