"""Multiply prune vectors into parameters, and cut rows and columns out of the parameters."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bertzoo.heads import parameter_shapes
from bertzoo.models import Model
from bertzoo.pruning.structure import AxisUse, Structure, resized

Params = Mapping[str, Any]  # arrays of numpy or JAX by path


def fold(structure: Structure, params: Params, vectors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters multiplied by prune vectors (schuBERT, Tables 4 and 5). vectors: by dimension.

    Vectors change only the layers' kernels. For the width of the embedding, they change the embedding's projection and
    the masked head's norm instead. The result is differentiable.
    """
    folded = dict(params)
    for use in structure.axis_uses:
        if use.folded and use.dimension in vectors:
            folded[use.path] = _multiply(folded[use.path], use, vectors[use.dimension])
    return folded


def cut(structure: Structure, params: Params, kept: Mapping[str, np.ndarray]) -> tuple[Model, dict[str, np.ndarray]]:
    """Return the config and the parameters of the smaller model.

    kept: {dimension: sorted indices of the elements to keep}.

    If K' of the K key elements of a head stay, query parameters are multiplied by √(K'/K), because attention divides
    scores by √K' instead of √K. Removing elements whose folded prune factors are 0 does not change the model's outputs,
    except for h and e (`structure.LETTERS`), because a new width changes the statistics of norms.
    """
    arrays = {path: np.asarray(array) for path, array in params.items()}
    for use in structure.axis_uses:
        if use.dimension in kept:
            arrays[use.path] = _take(arrays[use.path], use, np.asarray(kept[use.dimension]))
    sizes = structure.sizes | {name: len(indices) for name, indices in kept.items()}
    for name, dimension in structure.dimensions.items():
        if dimension.letter == "k" and sizes[name] != dimension.size:
            attention = name.rpartition("/")[0]
            for part in ("kernel", "bias"):
                path = f"{attention}/query/{part}"
                arrays[path] = arrays[path] * np.sqrt(sizes[name] / dimension.size).astype(arrays[path].dtype)
    model = resized(structure.model, sizes)
    shapes = parameter_shapes(model, structure.head)
    if wrong := [path for path, array in arrays.items() if array.shape != shapes.get(path)]:
        raise ValueError(f"{wrong[0]} was cut to {arrays[wrong[0]].shape}, but the config makes it {shapes[wrong[0]]}")
    return model, arrays


def _multiply(array: Any, use: AxisUse, vector: Any) -> Any:
    if use.groups == 1:
        return array * vector.reshape([-1 if axis == use.axis else 1 for axis in range(array.ndim)])
    window, inputs, outputs = array.shape
    split = array.reshape(window, inputs, use.groups, outputs // use.groups)
    return (split * vector.reshape(use.groups, inputs).T[None, :, :, None]).reshape(array.shape)


def _take(array: np.ndarray, use: AxisUse, kept: np.ndarray) -> np.ndarray:
    if use.groups == 1:
        return np.take(array, kept, axis=use.axis)
    window, inputs, outputs = array.shape
    split = array.reshape(window, inputs, use.groups, outputs // use.groups)
    # `kept` is sorted, with equally many elements in every group.
    local = kept.reshape(use.groups, -1) - inputs * np.arange(use.groups)[:, None]
    if local.min() < 0 or local.max() >= inputs:
        raise ValueError(f"{use.dimension} does not keep equally many elements in each of {use.groups} groups")
    parts = [split[:, local[group], group] for group in range(use.groups)]
    return np.stack(parts, axis=2).reshape(window, -1, outputs)
