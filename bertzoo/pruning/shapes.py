"""Dimensions that can be cut in each kind of model, and functions that change the sizes in a model config."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bertzoo.models import Albert, Bert, ConvBert, Electra, MobileBert, Model, SchuBert, SqueezeBert
from bertzoo.models.uneven import FeedForwardSize, per_layer

# The letters of schuBERT's paper (Table 2), and e for an embedding whose width is not that of the layers.
LETTERS = {
    "h": "the width of the layers",
    "e": "the width of the embedding",
    "f": "the feed-forward size",
    "a": "the heads",
    "k": "the size of a head's keys",
    "v": "the size of a head's values",
}
EVERY_LAYER_ITS_OWN = Bert | SchuBert
EVERY_FEED_FORWARD_ITS_OWN = ConvBert | MobileBert | SqueezeBert


def cuttable(model: Model) -> tuple[str, ...]:
    """Return the letters (keys of LETTERS) of the dimensions that can be cut in a model."""
    if isinstance(model, EVERY_LAYER_ITS_OWN):
        return ("h", "f", "a", "k", "v")
    return ("e", "f") if _factorised(model) else ("f",)


def tie(model: Model, name: str) -> str:
    """Return the label of the feed-forward dimension `name`; dimensions of one label lose equally many elements.

    The label is "" in `Bert` and `SchuBert`, whose feed-forwards are cut independently. In other models, feed-forwards
    share a label within a layer or, if the config has one size for all layers, in the whole model.
    """
    if isinstance(model, EVERY_LAYER_ITS_OWN):
        return ""
    return name.partition("/feed_forward")[0] if isinstance(model, EVERY_FEED_FORWARD_ITS_OWN) else "f"


def groups(model: Model) -> int:
    """Return the number of equal groups of a feed-forward's units; a cut removes equally many units from each."""
    if isinstance(model, SqueezeBert):
        return math.lcm(model.intermediate_groups, model.output_groups)
    return getattr(model, "feed_forward_groups", 1)


def refusal(model: Model, letter: str) -> str:
    """Return an error message that says why the dimension `letter` of a model cannot be cut."""
    if letter != "e":
        why = "its config has only one width, split evenly into heads"
    elif isinstance(model, MobileBert):
        why = (
            "its masked head is as wide as its layers, so a narrower embedding would give the head more untied weights"
        )
    else:
        why = "its embedding is as wide as its layers"
    can = ", ".join(cuttable(model))
    return f"{letter} ({LETTERS[letter]}) cannot be cut in a model of kind {model.kind}, because {why}. Use {can}."


def resized(model: Model, sizes: Mapping[str, int]) -> Model:
    """Return a model's config with new `sizes`, by name of dimension; a BERT becomes a schuBERT if any size changes."""
    if not isinstance(model, EVERY_LAYER_ITS_OWN):
        size = {} if "e" not in sizes else {"embedding_size": sizes["e"]}
        return dataclasses.replace(model, **size, feed_forward_size=_feed_forward_size(model, sizes))
    even = uneven(model)

    def in_layers(place: str, old: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sizes.get(f"encoder/layers_{index}/{place}", size) for index, size in enumerate(old))

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
