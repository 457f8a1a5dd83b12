"""Rules that pair our parameters with another project's tensors, and the conversion by these rules.

Rules write array layouts as axes, such as "D H K" in bertzoo and "(H K) D" in a checkpoint.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bertzoo.core.errors import UserError

Tensors = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]
Sizes = Mapping[str, int]


def groups(axes: str) -> list[list[str]]:
    """Return the axes of every dimension: "(H K) D" -> [["H", "K"], ["D"]]; "1" is a dimension without axes."""
    return [[axis for axis in text.strip("()").split() if axis != "1"] for text in re.findall(r"\([^()]*\)|\S+", axes)]


def bind(axes: str, shape: tuple[int, ...], sizes: Sizes) -> dict[str, int]:
    """Return the size of each axis of an array with `axes` and `shape`.

    sizes: by axis; one axis of each dimension may be missing. Raises ValueError if the axes do not describe an
    array of this shape, which means that the tensor rule is wrong.
    """
    layout, bound = groups(axes), dict(sizes)
    for names, size in zip(layout, shape, strict=False):
        unknown = [axis for axis in names if axis not in sizes]
        rest = math.prod(sizes[axis] for axis in names if axis in sizes)
        if len(unknown) > 1 or size % rest:
            raise ValueError(f"axes {axes!r} do not describe an array of shape {shape}")
        bound |= {axis: size // rest for axis in unknown}
    if len(layout) != len(shape) or math.prod(shape) != math.prod(bound[axis] for names in layout for axis in names):
        raise ValueError(f"axes {axes!r} do not describe an array of shape {shape}")
    return bound


def shape(axes: str, sizes: Sizes) -> tuple[int, ...]:
    """Return the shape of an array with `axes`, from the size of each axis."""
    return tuple(math.prod(sizes[axis] for axis in names) for names in groups(axes))


def rearrange(array: np.ndarray, axes: str, new_axes: str, sizes: Sizes) -> np.ndarray:
    """Return the array with its axes rearranged from `axes` to `new_axes`, contiguous in memory."""
    old, new = ([axis for names in groups(layout) for axis in names] for layout in (axes, new_axes))
    split = array.reshape([sizes[axis] for axis in old]).transpose([old.index(axis) for axis in new])
    return np.ascontiguousarray(split.reshape(shape(new_axes, sizes)))


class TensorRule(NamedTuple):
    """Pairs a tensor's path and axes in bertzoo with its name and axes in another project."""

    ours: str
    axes: str
    theirs: str
    their_axes: str
    sizes: Mapping[str, int] = MappingProxyType({})  # sizes of axes that cannot be inferred from the shape in bertzoo


def same(ours: str, theirs: str, axes: str) -> TensorRule:
    """Return the rule of a tensor whose axes are the same in bertzoo and in another project."""
    return TensorRule(ours, axes, theirs, axes)


def dense(ours: str, theirs: str, inputs: str, outputs: str) -> Iterator[TensorRule]:
    """Yield the rules of a dense layer, with torch's weight (outputs, inputs). inputs, outputs: axes, such as "H K"."""
    yield TensorRule(f"{ours}/kernel", f"{inputs} {outputs}", f"{theirs}.weight", f"({outputs}) ({inputs})")
    yield TensorRule(f"{ours}/bias", outputs, f"{theirs}.bias", f"({outputs})")


def convolution(ours: str, theirs: str) -> Iterator[TensorRule]:
    """Yield the rules that pair a grouped convolution with torch's weight (outputs, group inputs, window) and bias."""
    yield TensorRule(f"{ours}/kernel", "W I O", f"{theirs}.weight", "O I W")
    yield same(f"{ours}/bias", f"{theirs}.bias", "O")


def norm(ours: str, theirs: str) -> Iterator[TensorRule]:
    """Yield the rules that pair a norm's scale and bias with torch's weight and bias."""
    yield same(f"{ours}/scale", f"{theirs}.weight", "D")
    yield same(f"{ours}/bias", f"{theirs}.bias", "D")


def to_ours(rules: Iterable[TensorRule], tensors: Mapping[str, np.ndarray], shapes: Shapes, origin: str) -> Tensors:
    """Return our parameters by path, converted from another project's tensors.

    shapes: shapes of our parameters by path. origin: file of the tensors in messages. Raises UserError naming a tensor
    that is missing, has no rule, or has a wrong shape or type.
    """
    rules = _complete(rules, shapes, origin, "Use another model")
    check_names(rules, tensors, origin)
    params: Tensors = {}
    for rule in rules:
        sizes, array = bind(rule.axes, shapes[rule.ours], rule.sizes), tensors[rule.theirs]
        if array.shape != (expected := shape(rule.their_axes, sizes)):
            raise UserError(
                f"{origin}: the tensor {rule.theirs} has shape {array.shape}, but the config requires {expected}. "
                "Use the config that belongs to the tensors."
            )
        if array.dtype != np.float32:
            raise UserError(f"{origin}: the tensor {rule.theirs} holds {array.dtype}, not floats. Save it as float32.")
        params[rule.ours] = rearrange(array, rule.their_axes, rule.axes, sizes)
    return params


def check_names(rules: Iterable[TensorRule], tensors: Mapping[str, np.ndarray], origin: str) -> None:
    """Raise UserError naming a tensor that is missing or has no rule."""
    names = [rule.theirs for rule in rules]
    advice = "Use the config that belongs to the tensors"
    _check_known(names, tensors, f"{origin} lacks the tensor", "which its config requires", advice)
    _check_known(tensors, set(names), f"{origin} holds the tensor", "which a model of its config lacks", advice)


def to_theirs(rules: Iterable[TensorRule], params: Mapping[str, np.ndarray], origin: str) -> Tensors:
    """Return another project's tensors, converted from our parameters; raises UserError if a parameter has no rule."""
    tensors: Tensors = {}
    for rule in _complete(rules, {path: array.shape for path, array in params.items()}, origin, "Use --to=pytorch"):
        sizes = bind(rule.axes, params[rule.ours].shape, rule.sizes)
        tensors[rule.theirs] = rearrange(params[rule.ours], rule.axes, rule.their_axes, sizes)
    return tensors


def _complete(rules: Iterable[TensorRule], shapes: Shapes, origin: str, advice: str) -> list[TensorRule]:
    """Return the rules as a list; raises UserError ending with `advice` unless each parameter in `shapes` has one.

    Raises ValueError if two rules have the same path or tensor.
    """
    rules = list(rules)
    for side, names in (("path", [rule.ours for rule in rules]), ("tensor", [rule.theirs for rule in rules])):
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ValueError(f"there are two rules for the {side} {twice[0]}")
    paths = {rule.ours for rule in rules}
    before = f"{origin}: the model"
    _check_known(shapes, paths, f"{before} has the parameter", "which the other format cannot hold", advice)
    _check_known(sorted(paths), shapes, f"{before} lacks the parameter", "which the other format requires", advice)
    return rules


def _check_known(names: Iterable[str], expected: Collection[str], before: str, after: str, advice: str) -> None:
    if unknown := [name for name in names if name not in expected]:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise UserError(f"{before} {unknown[0]}{more}, {after}. {advice}.")
