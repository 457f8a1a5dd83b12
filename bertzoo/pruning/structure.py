"""Dimensions of a model that can be cut, their parameter axes, configs with other sizes, and the cut.

The axes are derived from the axis names in the model's modules; no parameter is listed by hand.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.heads import parameter_axes, parameter_shapes
from bertzoo.models import Albert, Bert, ConvBert, Electra, MobileBert, Model, ModernBert, SchuBert, SqueezeBert, Static
from bertzoo.models.parts import FeedForwardSize, per_layer
from bertzoo.pruning.layout import LETTERS

Sizes = Mapping[str, int]  # {name of a dimension: size}
Cost = Callable[[Sizes], float]
EVERY_LAYER_ITS_OWN = Bert | SchuBert
EVERY_FEED_FORWARD_ITS_OWN = ConvBert | MobileBert | ModernBert | SqueezeBert


def cuttable(model: Model) -> tuple[str, ...]:
    """Return the letters of the dimensions that can be cut in a model; raises ConfigError if it has no layers."""
    if isinstance(model, Static):
        raise ConfigError("a model of kind static has no layers, so it cannot be cut. Use a model of another kind.")
    if isinstance(model, EVERY_LAYER_ITS_OWN):
        return ("h", "f", "a", "k", "v")
    return ("e", "f") if _factorised(model) else ("f",)


def groups(model: Model) -> int:
    """Return the number of equal groups of a feed-forward's units; a cut removes equally many units from each group."""
    if isinstance(model, SqueezeBert):
        return math.lcm(model.intermediate_groups, model.output_groups)
    return getattr(model, "feed_forward_groups", 1)


def refusal(model: Model, letter: str) -> str:
    """Return an error message with the reason why the dimension `letter` of a model cannot be cut."""
    if letter != "e":
        why = "its config has only one width, split evenly into heads"
    elif isinstance(model, MobileBert):
        why = (
            "its masked head is as wide as its layers, so a narrower embedding would give the head more untied weights"
        )
    else:
        why = "its embedding is as wide as its layers"
    can = ", ".join(cuttable(model))
    return f"{letter} (the {LETTERS[letter]}) cannot be cut in a model of kind {model.kind}, because {why}. Use {can}."


def resized(model: Model, sizes: Mapping[str, int]) -> Model:
    """Return a model's config with new `sizes`, by name of dimension; a BERT becomes a schuBERT if any size changes."""
    if not isinstance(model, EVERY_LAYER_ITS_OWN):
        size = {} if "e" not in sizes else {"embedding_size": sizes["e"]}
        return dataclasses.replace(model, **size, feed_forward_size=_feed_forward_size(model, sizes))
    even = uneven(model)

    def in_layers(name: str, old: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sizes.get(f"encoder/layers_{index}/{name}", size) for index, size in enumerate(old))

    smaller = dataclasses.replace(
        even,
        hidden_size=sizes.get("h", even.hidden_size),
        feed_forward_sizes=in_layers("feed_forward/f", even.feed_forward_sizes),
        heads=in_layers("attention/a", even.heads),
        key_sizes=in_layers("attention/k", even.key_sizes),
        value_sizes=in_layers("attention/v", even.value_sizes),
    )
    return model if smaller == even else smaller


def _feed_forward_size(model: Any, sizes: Mapping[str, int]) -> FeedForwardSize:
    """Return the field feed_forward_size of a model with new `sizes`: an int if all layers are equal, else a tuple.

    If no size changes, returns the model's own value, even a tuple of equal sizes.
    """
    widths = list(per_layer(model.feed_forward_size, model.layers))
    for index in range(model.layers):
        layer = {size for name, size in sizes.items() if name.startswith(f"encoder/layers_{index}/feed_forward")}
        if len(layer) > 1:
            raise ValueError(f"a layer of kind {model.kind} has feed-forwards of one size, not {sorted(layer)}")
        widths[index] = layer.pop() if layer else widths[index]
    if isinstance(model, Albert):  # all layers share their feed-forward
        widths = widths[:1]
    if tuple(widths) == model.feed_forward_size:
        return model.feed_forward_size
    if len(set(widths)) > 1 and not isinstance(model, EVERY_FEED_FORWARD_ITS_OWN):
        raise ValueError(f"a model of kind {model.kind} has one feed-forward size, not {sorted({*widths})}")
    return widths[0] if len(set(widths)) == 1 else tuple(widths)


def layer_sizes(model: Model) -> list[dict[str, int]]:
    """Return {letter: size} for every layer of a model, with every dimension that can be cut (`cuttable`)."""
    if isinstance(model, EVERY_LAYER_ITS_OWN):
        even = uneven(model)
        rows = zip(even.feed_forward_sizes, even.heads, even.key_sizes, even.value_sizes, strict=True)
        return [dict(zip("hfakv", (even.hidden_size, *row), strict=True)) for row in rows]
    width = {"e": model.embedding_size} if isinstance(model, Albert | ConvBert | Electra) and _factorised(model) else {}
    return [{"f": size, **width} for size in per_layer(model.feed_forward_size, model.layers)]


def shallow(model: Model, layers: int, sizes: Mapping[str, int]) -> Model:
    """Return a config of the model's kind with `layers` equal layers.

    sizes: {letter: size}; a dimension whose letter is missing gets the largest size that it has in the model.
    """
    largest = {letter: max(layer[letter] for layer in layer_sizes(model)) for letter in cuttable(model)} | dict(sizes)
    if not isinstance(model, EVERY_LAYER_ITS_OWN):
        width = {"embedding_size": largest["e"]} if "e" in largest else {}
        return dataclasses.replace(model, layers=layers, feed_forward_size=largest["f"], **width)
    names = {"feed_forward_sizes": "f", "heads": "a", "key_sizes": "k", "value_sizes": "v"}
    repeated = {name: (largest[letter],) * layers for name, letter in names.items()}
    return dataclasses.replace(uneven(model), hidden_size=largest["h"], **repeated)


def uneven(model: Bert | SchuBert) -> SchuBert:
    """Return the config as an equivalent SchuBert config, which has the sizes of every layer."""
    if isinstance(model, SchuBert):
        return model
    shared = {field.name for field in dataclasses.fields(Bert)} & {field.name for field in dataclasses.fields(SchuBert)}
    layers, size = model.layers, model.hidden_size // model.heads
    return SchuBert(
        **{name: getattr(model, name) for name in shared - {"kind", "heads"}},
        feed_forward_sizes=(model.feed_forward_size,) * layers,
        heads=(model.heads,) * layers,
        key_sizes=(size,) * layers,
        value_sizes=(size,) * layers,
    )


def _factorised(model: Model) -> bool:
    # Without a projection, the widths of embedding and layers are one dimension. ALBERT always has a projection.
    return isinstance(model, Albert) or (
        isinstance(model, ConvBert | Electra) and model.embedding_size != model.hidden_size
    )


class Dimension(NamedTuple):
    """One dimension that can be cut, with a prune vector of `size` elements.

    name: "h", "e", or the module and a letter, such as encoder/layers_3/attention/k.
    letter: see `LETTERS`.
    groups: number of equal groups; a cut removes equally many elements from each.
    tie: a label; dimensions with the same label lose equally many elements. "" for a dimension cut independently.
    """

    name: str
    letter: str
    size: int
    groups: int = 1
    tie: str = ""


class AxisUse(NamedTuple):
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
    """A model with a head, the shapes of their parameters by path, and the dimensions that can be cut, by name.

    axis_uses: the parameter axes that run over the elements of these dimensions.
    """

    model: Model
    head: Any
    shapes: Mapping[str, tuple[int, ...]]
    dimensions: Mapping[str, Dimension]
    axis_uses: tuple[AxisUse, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """The size of every dimension by name, before a cut."""
        return {name: dimension.size for name, dimension in self.dimensions.items()}

    @property
    def by_letter(self) -> dict[str, list[str]]:
        """Names of the dimensions by letter (`LETTERS`), as {"f": ["encoder/layers_0/feed_forward/f", …]}."""
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
    axis_uses: list[AxisUse] = []
    for path, names in axes.items():
        for axis, axis_name in enumerate(names):
            name = _dimension_name(path, axis_name, model)
            letter = name.rpartition("/")[2]
            if letter not in (letters or cuttable(model)):
                continue
            dimension = dimensions.setdefault(name, _dimension(name, letter, model, axes, shapes))
            size = shapes[path][axis]
            per_index = dimension.size // size if axis_name == "group_in" else 1
            if size * per_index != dimension.size:
                raise ConfigError(
                    f"{letter} cannot be cut under a head of kind {head.kind}, because axis {axis} of {path} has size "
                    f"{size}, but {name} has size {dimension.size}. Remove {letter} from cut.dimensions."
                )
            # Vectors of e, the width of the embedding, are multiplied into the kernel of its projection and the masked
            # head's norm; all others into the layers' kernels (schuBERT's Tables 4 and 5).
            if letter == "e":
                folded = path == "encoder/projection/kernel" or path.startswith("masked_head/norm/")
            else:
                folded = path.startswith("encoder/layers_") and path.endswith("/kernel")
            axis_uses.append(AxisUse(path, axis, name, folded, per_index))
    return Structure(model, head, shapes, dimensions, tuple(axis_uses))


def _dimension(name: str, letter: str, model: Model, axes: Mapping[str, Any], shapes: Mapping[str, Any]) -> Dimension:
    if letter in ("h", "e"):
        return Dimension(name, letter, getattr(model, "hidden_size" if letter == "h" else "embedding_size"))
    # The kernel of grouped outputs and the bias have the whole size of a dimension, a grouped input less.
    size = max(
        shapes[path][axis]
        for path, names in axes.items()
        for axis, axis_name in enumerate(names)
        if _dimension_name(path, axis_name, model) == name
    )
    if letter != "f" or isinstance(model, EVERY_LAYER_ITS_OWN):
        return Dimension(name, letter, size)
    # Tied are the feed-forwards of a layer or, if the config has one size for all layers, of the model.
    tie = name.partition("/feed_forward")[0] if isinstance(model, EVERY_FEED_FORWARD_ITS_OWN) else "f"
    return Dimension(name, letter, size, groups(model), tie)


def _dimension_name(path: str, axis: str, model: Model) -> str:
    """Return the name of the dimension whose elements an axis of a parameter runs over; "" if there is none.

    path: the parameter's path. axis: the logical name of the axis, such as "heads".
    """
    if axis in ("model", "pooled"):
        return "h"
    if axis == "embed":
        return "e" if "e" in cuttable(model) else "h"
    owner, _, layer = path.rpartition("/")[0].rpartition("/")
    if axis == "heads":
        return f"{owner}/a"
    if axis == "head_size":
        return f"{owner}/k" if layer in ("query", "key") else f"{owner}/v"
    inside = owner.rpartition("/")[2].startswith("feed_forward")
    grouped = inside and (axis, layer) in (("group_out", "intermediate"), ("group_out", "gate"), ("group_in", "output"))
    return f"{owner}/f" if axis == "feed_forward" or grouped else ""


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


def cut(structure: Structure, params: Params, indices: Mapping[str, np.ndarray]) -> tuple[Model, dict[str, np.ndarray]]:
    """Return the config and the parameters of the smaller model.

    indices: {dimension: sorted indices of the elements to keep}.

    If a head keeps K' of K key elements, its query parameters are multiplied by √(K'/K), because attention divides the
    scores by √K' instead of √K. Removing elements whose folded prune factors are 0 does not change the model's outputs,
    except for h and e (`structure.LETTERS`), because a new width changes the statistics of norms.
    """
    arrays = {path: np.asarray(array) for path, array in params.items()}
    for use in structure.axis_uses:
        if use.dimension in indices:
            arrays[use.path] = _take(arrays[use.path], use, np.asarray(indices[use.dimension]))
    sizes = structure.sizes | {name: len(array) for name, array in indices.items()}
    for name, dimension in structure.dimensions.items():
        if dimension.letter == "k" and sizes[name] != dimension.size:
            attention = name.rpartition("/")[0]
            for path in (f"{attention}/query/kernel", f"{attention}/query/bias"):
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


def _take(array: np.ndarray, use: AxisUse, indices: np.ndarray) -> np.ndarray:
    if use.groups == 1:
        return np.take(array, indices, axis=use.axis)
    window, inputs, outputs = array.shape
    split = array.reshape(window, inputs, use.groups, outputs // use.groups)
    # `indices` is sorted, with equally many elements in every group.
    local = indices.reshape(use.groups, -1) - inputs * np.arange(use.groups)[:, None]
    if local.min() < 0 or local.max() >= inputs:
        raise ValueError(f"{use.dimension} does not keep equally many elements in each of {use.groups} groups")
    slices = [split[:, local[group], group] for group in range(use.groups)]
    return np.stack(slices, axis=2).reshape(window, -1, outputs)
