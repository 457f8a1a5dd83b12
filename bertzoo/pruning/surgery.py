"""Multiplying prune vectors into parameters, and cutting rows and columns out of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.models import Model
from bertzoo.models.tasks import parameter_shapes
from bertzoo.pruning.shapes import resized
from bertzoo.pruning.structure import Structure, Touch

Params = Mapping[str, Any]  # arrays of numpy or JAX by their paths


def fold(structure: Structure, params: Params, vectors: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with the prune vectors, by the names of their dimensions, multiplied in (Tables 4 and 5).

    Differentiable; a dimension without a vector is left as it is, and so are parameters that the structure does not
    have. Biases, norms and tables are not multiplied. Raises UserError where params are of another model.
    """
    folded = dict(params)
    for touch in structure.touches:
        if touch.folded and touch.dimension in vectors:
            _check(structure, params, touch.path)
            folded[touch.path] = _multiplied(folded[touch.path], touch, vectors[touch.dimension])
    return folded


def cut(structure: Structure, params: Params, kept: Mapping[str, np.ndarray]) -> tuple[Model, dict[str, np.ndarray]]:
    """The smaller config and its parameters: of every dimension the elements `kept`, sorted indices by its name.

    Where elements of f, a, k and v are 0 in the prune vectors that were folded in, outputs stay the same: queries are
    multiplied by √(K'/K), as attention divides the scores of K' instead of K elements by √K'. A cut of h or e changes
    the statistics of the norms. Raises UserError where params are not the structure's.
    """
    for path in structure.shapes:
        _check(structure, params, path)
    if more := sorted(set(params) - set(structure.shapes)):
        raise UserError(
            f"the parameters hold {more[0]}, which a model of kind {structure.model.kind} under a head of kind "
            f"{structure.head.kind} does not have: leave it out"
        )
    made = {path: np.asarray(array) for path, array in params.items()}
    for touch in structure.touches:
        if touch.dimension in kept:
            made[touch.path] = _taken(made[touch.path], touch, np.asarray(kept[touch.dimension]))
    sizes = structure.sizes | {name: len(indices) for name, indices in kept.items()}
    for name, dimension in structure.dimensions.items():
        if dimension.letter == "k" and sizes[name] != dimension.size:
            attention = name.rpartition("/")[0]
            for part in ("kernel", "bias"):
                path = f"{attention}/query/{part}"
                made[path] = made[path] * np.sqrt(sizes[name] / dimension.size).astype(made[path].dtype)
    model = resized(structure.model, sizes)
    wanted = parameter_shapes(model, structure.head)
    if wrong := [path for path, array in made.items() if array.shape != wanted.get(path)]:
        raise ValueError(f"{wrong[0]} was cut to {made[wrong[0]].shape}, but the config makes it {wanted[wrong[0]]}")
    return model, made


def _multiplied(array: Any, touch: Touch, vector: Any) -> Any:
    if touch.groups == 1:
        return array * vector.reshape([-1 if axis == touch.axis else 1 for axis in range(array.ndim)])
    window, inputs, outputs = array.shape
    split = array.reshape(window, inputs, touch.groups, outputs // touch.groups)
    return (split * vector.reshape(touch.groups, inputs).T[None, :, :, None]).reshape(array.shape)


def _taken(array: np.ndarray, touch: Touch, kept: np.ndarray) -> np.ndarray:
    if touch.groups == 1:
        return np.take(array, kept, axis=touch.axis)
    window, inputs, outputs = array.shape
    split = array.reshape(window, inputs, touch.groups, outputs // touch.groups)
    # Sorted, and as many in every group.
    local = kept.reshape(touch.groups, -1) - inputs * np.arange(touch.groups)[:, None]
    if local.min() < 0 or local.max() >= inputs:
        raise ValueError(f"the elements kept of {touch.dimension} are not as many in each of {touch.groups} groups")
    parts = [split[:, local[group], group] for group in range(touch.groups)]
    return np.stack(parts, axis=2).reshape(window, -1, outputs)


def _check(structure: Structure, params: Params, path: str) -> None:
    kind, shape = structure.model.kind, structure.shapes[path]
    if path not in params:
        raise UserError(f"the parameters lack {path}, which a model of kind {kind} has: give those of that model")
    if tuple(params[path].shape) != shape:
        raise UserError(
            f"{path} has shape {tuple(params[path].shape)}, but the model of kind {kind} makes that {shape}: give "
            "the parameters of that model"
        )
