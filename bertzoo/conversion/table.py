"""Rows that pair our parameters with their tensors, and the conversion by such rows, in both directions."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bertzoo.conversion import layout
from bertzoo.core.errors import UserError

Tensors = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]


class Row(NamedTuple):
    """One tensor: our path and axes, their name and axes, and the sizes that the shape of ours does not say."""

    ours: str
    axes: str
    theirs: str
    their_axes: str
    sizes: Mapping[str, int] = MappingProxyType({})


def same(ours: str, theirs: str, axes: str) -> Row:
    """A tensor whose layout is the same on both sides."""
    return Row(ours, axes, theirs, axes)


def dense(ours: str, theirs: str, inputs: str, outputs: str) -> Iterator[Row]:
    """A dense map, which torch stores as one matrix (outputs, inputs); both may be of several axes of ours."""
    yield Row(f"{ours}/kernel", f"{inputs} {outputs}", f"{theirs}.weight", f"({outputs}) ({inputs})")
    yield Row(f"{ours}/bias", outputs, f"{theirs}.bias", f"({outputs})")


def convolution(ours: str, theirs: str) -> Iterator[Row]:
    """A grouped convolution, which torch stores as (outputs, inputs of a group, window)."""
    yield Row(f"{ours}/kernel", "W I O", f"{theirs}.weight", "O I W")
    yield same(f"{ours}/bias", f"{theirs}.bias", "O")


def norm(ours: str, theirs: str) -> Iterator[Row]:
    """Scale and bias of a normalisation."""
    yield same(f"{ours}/scale", f"{theirs}.weight", "D")
    yield same(f"{ours}/bias", f"{theirs}.bias", "D")


def to_ours(rows: Iterable[Row], tensors: Mapping[str, np.ndarray], shapes: Shapes, origin: str) -> Tensors:
    """Their tensors as our parameters, of the shapes that our module has; `origin` names their file in messages.

    Raises UserError naming a tensor that is missing, has no rule or another shape.
    """
    table = _checked(rows, shapes, f"the config in {origin}")
    _nothing_left([row.theirs for row in table], tensors, f"{origin} lacks the tensor", "which its config asks for")
    _nothing_left(tensors, {row.theirs for row in table}, f"{origin} holds the tensor", "for which there is no rule")
    found: Tensors = {}
    for row in table:
        sizes, array = layout.bind(row.axes, shapes[row.ours], row.sizes), tensors[row.theirs]
        if array.shape != (wanted := layout.shape(row.their_axes, sizes)):
            raise UserError(
                f"{origin}: the tensor {row.theirs} has shape {array.shape}, but its config makes that {wanted}"
            )
        if array.dtype != np.float32:
            raise UserError(f"{origin}: the tensor {row.theirs} holds {array.dtype}, not floating-point numbers")
        found[row.ours] = layout.rearrange(array, row.their_axes, row.axes, sizes)
    return found


def to_theirs(rows: Iterable[Row], params: Mapping[str, np.ndarray], origin: str) -> Tensors:
    """Our parameters as their tensors; raises UserError naming a parameter that their model has no place for."""
    shapes = {path: array.shape for path, array in params.items()}
    table = _checked(rows, shapes, origin)
    return {
        row.theirs: layout.rearrange(
            params[row.ours], row.axes, row.their_axes, layout.bind(row.axes, shapes[row.ours], row.sizes)
        )
        for row in table
    }


def _checked(rows: Iterable[Row], shapes: Shapes, origin: str) -> list[Row]:
    """The rows, after checking that they name every parameter exactly once and no tensor twice."""
    table = list(rows)
    for side, names in (("path", [row.ours for row in table]), ("tensor", [row.theirs for row in table])):
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ValueError(f"the table has two rules for the {side} {twice[0]}")
    paths = {row.ours for row in table}
    _nothing_left(shapes, paths, f"{origin} makes a model with the parameter", "for which Hugging Face's has no place")
    _nothing_left(sorted(paths), shapes, f"{origin} makes a model without the parameter", "which Hugging Face's needs")
    return table


def _nothing_left(names: Iterable[str], known: Collection[str], before: str, after: str) -> None:
    left = [name for name in names if name not in known]
    if left:
        more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
        raise UserError(f"{before} {left[0]}{more}, {after}")
