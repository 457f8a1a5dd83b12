"""Dimensions of a model that can be cut, and the parameter axes that hold them.

Both are derived from the names that the model's modules give the axes of parameters; no parameter is listed by hand.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bertzoo.core.errors import ConfigError
from bertzoo.models import Model
from bertzoo.models.tasks import parameter_axes, parameter_shapes
from bertzoo.pruning.shapes import LETTERS, cuttable, groups, refusal, tie


class Dimension(NamedTuple):
    """One dimension that can be cut, with a prune vector of `size` elements.

    name: "h", "e", or the module and a letter, such as encoder/layers_3/attention/k.
    letter: see `shapes.LETTERS`.
    groups: number of equal parts; a cut removes equally many elements from each.
    tie: a label; dimensions with the same label lose equally many elements. "" for a dimension cut independently.
    """

    name: str
    letter: str
    size: int
    groups: int = 1
    tie: str = ""


class Touch(NamedTuple):
    """An axis of the parameter at `path` that runs over the elements of a dimension.

    folded: whether the prune vector is multiplied into the parameter (schuBERT's Tables 4 and 5).
    groups: number of elements for each index of the axis. A grouped kernel (window, I/G, outputs) with I inputs in G
    groups has G elements for each index of its input axis; any other axis has 1 for each index.
    """

    path: str
    axis: int
    dimension: str
    folded: bool
    groups: int = 1


@dataclass(frozen=True, eq=False)  # hashed by identity, since mappings have no hash
class Structure:
    """A model with a head, and its dimensions that can be cut.

    shapes: {path of a parameter: shape}, including the head's parameters.
    dimensions: {name: dimension}.
    touches: the parameter axes that run over the elements of these dimensions.
    """

    model: Model
    head: Any
    shapes: Mapping[str, tuple[int, ...]]
    dimensions: Mapping[str, Dimension]
    touches: tuple[Touch, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """The size of every dimension by name, before a cut."""
        return {name: dimension.size for name, dimension in self.dimensions.items()}

    @property
    def by_letter(self) -> dict[str, list[str]]:
        """Names of the dimensions by letter (`shapes.LETTERS`), as {"f": ["encoder/layers_0/feed_forward/f", …]}."""
        names: dict[str, list[str]] = {}
        for name, dimension in self.dimensions.items():
            names.setdefault(dimension.letter, []).append(name)
        return names


def declare(model: Model, head: Any, letters: Sequence[str] = ()) -> Structure:
    """Return the structure of a model with a head: all dimensions that can be cut, or only those of `letters`.

    Raises ConfigError for an unknown letter, a dimension that the model lacks, or a head with a width of its own.
    """
    for letter in letters:
        if letter not in LETTERS:
            raise ConfigError(f'the dimension "{letter}" is unknown. Use one of {", ".join(LETTERS)}.')
        if letter not in cuttable(model):
            raise ConfigError(refusal(model, letter))
    shapes, axes = parameter_shapes(model, head), parameter_axes(model, head)
    dimensions: dict[str, Dimension] = {}
    touches: list[Touch] = []
    for path, names in axes.items():
        for axis, axis_name in enumerate(names):
            name = _dimension_name(path, axis_name, model)
            letter = name.rpartition("/")[2]
            if letter not in (letters or cuttable(model)):
                continue
            dimension = dimensions.setdefault(name, _dimension(name, letter, model, axes, shapes))
            size = shapes[path][axis]
            inner = dimension.size // size if axis_name == "group_in" else 1
            if size * inner != dimension.size:
                raise ConfigError(
                    f"{letter} cannot be cut under a head of kind {head.kind}, because axis {axis} of {path} has size "
                    f"{size}, but {name} has size {dimension.size}. Remove {letter} from cut.dimensions."
                )
            touches.append(Touch(path, axis, name, _folded(path, letter), inner))
    return Structure(model, head, shapes, dimensions, tuple(touches))


def _dimension(name: str, letter: str, model: Model, axes: Mapping[str, Any], shapes: Mapping[str, Any]) -> Dimension:
    if letter in ("h", "e"):
        return Dimension(name, letter, getattr(model, "hidden_size" if letter == "h" else "embedding_size"))
    # A bias has the whole size of a dimension, even if the kernel is grouped.
    size = next(
        shapes[path][axis]
        for path, names in axes.items()
        for axis, axis_name in enumerate(names)
        if path.endswith("/bias") and _dimension_name(path, axis_name, model) == name
    )
    if letter == "f":
        return Dimension(name, letter, size, groups(model), tie(model, name))
    return Dimension(name, letter, size)


def _dimension_name(path: str, axis: str, model: Model) -> str:
    """Return the name of the dimension whose elements an axis of a parameter runs over; "" if there is none.

    path: the parameter's path. axis: the logical name of the axis, such as "heads".
    """
    if axis in ("model", "pooled"):
        return "h"
    if axis == "embed":
        return "e" if "e" in cuttable(model) else "h"
    owner, _, part = path.rpartition("/")[0].rpartition("/")
    if axis == "heads":
        return f"{owner}/a"
    if axis == "head_size":
        return f"{owner}/k" if part in ("query", "key") else f"{owner}/v"
    inside = owner.rpartition("/")[2].startswith("feed_forward")
    grouped = inside and (axis, part) in (("group_out", "intermediate"), ("group_in", "output"))
    return f"{owner}/f" if axis == "feed_forward" or grouped else ""


def _folded(path: str, letter: str) -> bool:
    """Return whether prune vectors of dimension `letter` are multiplied into the parameter at `path`.

    Vectors of e, the width of the embedding, are multiplied into the kernel of the embedding's projection and into the
    masked head's norm. All other vectors are multiplied into the layers' kernels (schuBERT's Tables 4 and 5).
    """
    if letter == "e":
        return path == "encoder/projection/kernel" or path.startswith("masked_head/norm/")
    return path.startswith("encoder/layers_") and path.endswith("/kernel")


def count(structure: Structure, sizes: Mapping[str, int], parts: Sequence[str] = ()) -> int:
    """Return the number of parameters of a model with the given `sizes`. parts: modules to count; empty: all."""
    prefixes = tuple(f"{part}/" for part in parts) or ("",)
    shapes = {path: list(shape) for path, shape in structure.shapes.items() if path.startswith(prefixes)}
    for touch in structure.touches:
        if touch.path in shapes:
            shapes[touch.path][touch.axis] = sizes[touch.dimension] // touch.groups
    return sum(math.prod(shape) for shape in shapes.values())
