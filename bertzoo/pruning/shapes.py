"""Which dimensions the config of each kind of model has a place for, and the config of a model that was cut."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bertzoo.models import Albert, Bert, ConvBert, Electra, MobileBert, Model, SchuBert, SqueezeBert
from bertzoo.models.uneven import FeedForwardSize, per_layer

# The letters of the paper (Table 2), and e for an embedding that is not as wide as the layers.
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
    """The letters of the dimensions that can be cut in a model."""
    if isinstance(model, EVERY_LAYER_ITS_OWN):
        return ("h", "f", "a", "k", "v")
    return ("e", "f") if _factorised(model) else ("f",)


def tie(model: Model, name: str) -> str:
    """With what a feed-forward of a model is cut by as much: with those of its layer, or, where the config has one size
    for all, with all; with none where it is empty.
    """
    if isinstance(model, EVERY_LAYER_ITS_OWN):
        return ""
    return name.partition("/feed_forward")[0] if isinstance(model, EVERY_FEED_FORWARD_ITS_OWN) else "f"


def groups(model: Model) -> int:
    """How many equal parts a feed-forward stays divisible into, each of them losing as many units."""
    if isinstance(model, SqueezeBert):
        return math.lcm(model.intermediate_groups, model.output_groups)
    return getattr(model, "feed_forward_groups", 1)


def refusal(model: Model, letter: str) -> str:
    """One sentence that says why a dimension of a model cannot be cut."""
    name, can = LETTERS[letter], ", ".join(cuttable(model))
    if letter != "e":
        why = "its config has one width, which its heads share out evenly"
    elif isinstance(model, MobileBert):
        why = "its head is as wide as its layers, and would gain in weights of its own what it loses in tied ones"
    else:
        why = "its embedding is as wide as its layers"
    return f"{letter}, {name}, cannot be cut in a model of kind {model.kind}, as {why}: {can} can"


def resized(model: Model, sizes: Mapping[str, int]) -> Model:
    """The config of a model whose dimensions, by name, have these sizes; a BERT of uneven layers is a schuBERT."""
    if not isinstance(model, EVERY_LAYER_ITS_OWN):
        size = {} if "e" not in sizes else {"embedding_size": sizes["e"]}
        return dataclasses.replace(model, **size, feed_forward_size=_feed_forward_size(model, sizes))
    even = uneven(model)

    def of(place: str, given: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sizes.get(f"encoder/layers_{index}/{place}", size) for index, size in enumerate(given))

    made = dataclasses.replace(
        even,
        hidden_size=sizes.get("h", even.hidden_size),
        feed_forward_sizes=of("feed_forward/f", even.feed_forward_sizes),
        heads=of("attention/a", even.heads),
        key_sizes=of("attention/k", even.key_sizes),
        value_sizes=of("attention/v", even.value_sizes),
    )
    return model if made == even else made


def _feed_forward_size(model: Any, sizes: Mapping[str, int]) -> FeedForwardSize:
    """For the config of a model: one size where all are the same, unless it had them one by one and still has."""
    found = list(per_layer(model.feed_forward_size, model.layers))
    for index in range(model.layers):
        own = {size for name, size in sizes.items() if name.startswith(f"encoder/layers_{index}/feed_forward")}
        if len(own) > 1:
            raise ValueError(f"a layer of kind {model.kind} has feed-forwards of one size, not {sorted(own)}")
        found[index] = own.pop() if own else found[index]
    if isinstance(model, Albert):  # whose layers are one
        found = found[:1]
    if tuple(found) == model.feed_forward_size:
        return model.feed_forward_size
    if len(set(found)) > 1 and not isinstance(model, EVERY_FEED_FORWARD_ITS_OWN):
        raise ValueError(f"a model of kind {model.kind} has one feed-forward size, not {sorted({*found})}")
    return found[0] if len(set(found)) == 1 else tuple(found)


def of_layers(model: Model) -> list[dict[str, int]]:
    """For every layer, in their order, the sizes of all dimensions that can be cut in the model, by their letters."""
    if isinstance(model, EVERY_LAYER_ITS_OWN):
        even = uneven(model)
        rows = zip(even.feed_forward_sizes, even.heads, even.key_sizes, even.value_sizes, strict=True)
        return [dict(zip("hfakv", (even.hidden_size, *row), strict=True)) for row in rows]
    width = {"e": model.embedding_size} if isinstance(model, Albert | ConvBert | Electra) and _factorised(model) else {}
    return [{"f": size, **width} for size in per_layer(model.feed_forward_size, model.layers)]


def shallow(model: Model, layers: int, sizes: Mapping[str, int]) -> Model:
    """A model of the same kind with so many layers alike, which have the model's largest sizes or by letter these."""
    largest = {letter: max(layer[letter] for layer in of_layers(model)) for letter in cuttable(model)} | dict(sizes)
    if not isinstance(model, EVERY_LAYER_ITS_OWN):
        width = {"embedding_size": largest["e"]} if "e" in largest else {}
        return dataclasses.replace(model, layers=layers, feed_forward_size=largest["f"], **width)
    names = {"feed_forward_sizes": "f", "heads": "a", "key_sizes": "k", "value_sizes": "v"}
    each = {name: (largest[letter],) * layers for name, letter in names.items()}
    return dataclasses.replace(uneven(model), hidden_size=largest["h"], **each)


def uneven(model: Bert | SchuBert) -> SchuBert:
    """As a schuBERT, whose config has a place for every dimension of every layer."""
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
    # Without a projection between them (ALBERT always has one) both widths are one.
    return isinstance(model, Albert) or (
        isinstance(model, ConvBert | Electra) and model.embedding_size != model.hidden_size
    )
