"""The other small table: config.json <-> the fields of a model config and of its head."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from bertzoo.conversion.family import FIXED, IGNORED, Family, Inexpressible
from bertzoo.conversion.table import Tensors
from bertzoo.core import config as loader
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.models import tasks

_HEADS: Mapping[str, type] = {
    "none": tasks.NoHead,
    "masked": tasks.MaskedLanguageModel,
    "masked_sentence": tasks.MaskedLanguageModel,
    "replaced": tasks.ReplacedTokens,
    "span": tasks.SpanExtraction,
    "token_classification": tasks.TokenClassification,
    "sequence_classification": tasks.SequenceClassification,
}
_COUNTS = ("num_labels", "_num_labels")
_DEEPEST = 1000  # layers, where the tensors do not limit them: ALBERT's share theirs


def read_model(family: Family, attributes: Mapping[str, Any], origin: str) -> Any:
    """The model config that config.json describes.

    Raises UserError naming an attribute that is not understood, or that asks for what this architecture here has not.
    """
    fixed = {**FIXED, **family.fixed}
    known = {a.theirs for a in family.attributes} | IGNORED | family.ignored | fixed.keys() | family.dropouts.keys()
    known |= family.more
    for name, value in attributes.items():
        if name not in known:
            raise UserError(f"{origin}: the attribute {name} = {value!r} is not understood")
        if name in fixed and value != fixed[name]:
            raise UserError(f"{origin}: {name} = {value!r} is not supported, only {fixed[name]!r} is")
    fields: dict[str, Any] = {}
    for attribute in family.attributes:
        value = attributes.get(attribute.theirs, attribute.default)
        if isinstance(value, list | tuple) and not attribute.values:  # which a field of ours may be
            raise UserError(f"{origin}: {attribute.theirs} = {value!r} is not supported, only one for all layers is")
        if attribute.values:
            if not isinstance(value, str) or value not in attribute.values:
                names = ", ".join(attribute.values)
                raise UserError(f"{origin}: {attribute.theirs} = {value!r} is not supported, only {names} are")
            value = attribute.values[value]
        if fields.setdefault(attribute.ours, value) != value:
            first = next(a.theirs for a in family.attributes if a.ours == attribute.ours)
            raise UserError(
                f"{origin}: {attribute.theirs} = {value!r} differs from {first} = {fields[attribute.ours]!r}"
            )
    try:
        return loader.from_dict(family.config, fields | family.read_more(attributes))
    except ConfigError as error:
        names = [(a.ours, a.theirs) for a in family.attributes]
        raise UserError(f"{origin}: {error}{_translation(names, error)}") from error


def _translation(names: Iterable[tuple[str, str]], error: ConfigError) -> str:
    """The end of a message: their names of our fields in it."""
    words = {word.split(".")[0] for word in str(error).split()}
    said = ", ".join(f"{ours} is {theirs}" for ours, theirs in names if ours in words and ours != theirs)
    return f" ({said})" if said else ""


def check_counts(
    family: Family, model: Any, attributes: Mapping[str, Any], found: Tensors, origin: str, file: str
) -> None:
    """Raise UserError where a size is beyond what the tensors of `file` can be of, before a model of it is built."""
    numbers = sum(array.size for array in found.values())
    theirs = {a.ours: a.theirs for a in reversed(family.attributes)}
    sizes = {f.name: getattr(model, f.name) for f in dataclasses.fields(model) if f.name != "layers"}
    sizes |= {name: attributes.get(name) for name in _COUNTS}
    sizes["layers"] = model.layers  # the last, since it takes a list of a layer's tensors
    for name, size in sizes.items():
        most = len(found) if name in ("feed_forwards", "layers") else numbers
        if name == "layers" and _shares(family, model):
            most = _DEEPEST
        if isinstance(size, int) and size > most:
            raise UserError(
                f"{origin}: {theirs.get(name, name)} = {size} is too large for {file}, which holds {len(found)} "
                f"tensors of together {numbers:,} numbers"
            )


def _shares(family: Family, model: Any) -> bool:
    """Whether more layers are no more tensors."""
    one, two = (len([*family.rows(dataclasses.replace(model, layers=layers))]) for layers in (1, 2))
    return one == two


def read_head(family: Family, key: str, model: Any, attributes: Mapping[str, Any], pooler: bool, origin: str) -> Any:
    """The head config of a class (`key` as in `Family.heads`), as config.json describes it."""
    name = family.heads[key].dropout
    labels, dropout = _labels(attributes, origin), _dropout(family, name, model, attributes)
    fields: dict[str, Any] = {
        "none": {},
        "masked": {},
        "masked_sentence": {"sentence": True},
        "replaced": {},
        "span": {"dropout": dropout},
        "token_classification": {"labels": labels, "dropout": dropout},
        "sequence_classification": {
            "labels": labels,
            "hidden": family.hidden(model),
            "input_dropout": dropout if family.input_dropout else 0.0,
            "dropout": dropout,
            "problem_type": attributes.get("problem_type"),
        },
    }[key]
    if key != "replaced":  # which has none
        fields["pooler"] = pooler
    try:
        return loader.from_dict(_HEADS[key], fields)
    except ConfigError as error:
        names = [("labels", "id2label"), *((ours, name) for ours in ("dropout", "input_dropout") if name)]
        raise UserError(f"{origin}: {error}{_translation(names, error)}") from error


def _dropout(family: Family, name: str | None, model: Any, attributes: Mapping[str, Any]) -> Any:
    if name is None:
        return 0.0
    own = next((a.ours for a in family.attributes if a.theirs == name), None)
    value = getattr(model, own) if own else attributes.get(name, family.dropouts[name])
    return model.dropout if value is None else value


def _labels(attributes: Mapping[str, Any], origin: str) -> list[Any]:
    named = attributes.get("id2label")
    if named is not None and not isinstance(named, Mapping):
        raise UserError(f"{origin}: id2label = {named!r} is not a table of labels by their numbers")
    if not named:
        name, count = next(((n, attributes[n]) for n in _COUNTS if n in attributes), ("", 2))
        if type(count) is not int or count < 1:
            raise UserError(f"{origin}: {name} = {count!r} is not a number of labels")
        return [f"LABEL_{index}" for index in range(count)]
    try:
        return [named[str(index)] for index in range(len(named))]
    except KeyError as error:
        raise UserError(f"{origin}: id2label names {len(named)} labels, but none has the number {error}") from error


def head_key(head: Any) -> str:
    """A head config's key in `Family.heads`."""
    return "masked_sentence" if getattr(head, "sentence", False) else head.kind


def write(family: Family, model: Any, head: Any) -> dict[str, Any]:
    """config.json of a model under a head.

    Raises Inexpressible naming what of the model Hugging Face's class cannot be told, UserError what of the head.
    """
    key = head_key(head)
    layout = family.heads[key]
    refusal = family.refuse(model, key)
    attributes: dict[str, Any] = {
        "architectures": [layout.architecture],
        "model_type": family.model_type,
        "dtype": "float32",
    }
    for attribute in family.attributes:
        value = getattr(model, attribute.ours)
        if isinstance(value, tuple):
            refusal = refusal or f"it has one {attribute.theirs} for all layers, not {', '.join(map(str, value))}"
        if attribute.values:
            theirs = next((theirs for theirs, ours in attribute.values.items() if ours == value), None)
            refusal = refusal or (None if theirs else f"it has no {attribute.theirs} for {attribute.ours} = {value}")
            value = theirs
        attributes[attribute.theirs] = value
    attributes |= family.write_more(model)
    refusal = refusal or next(
        (f"{n} can only be {v}, not {attributes[n]}" for n, v in family.fixed.items() if attributes.get(n, v) != v),
        None,
    )
    refuse(layout.architecture, refusal)
    again = read_model(family, attributes, layout.architecture)
    for field in dataclasses.fields(model):
        value, theirs = getattr(model, field.name), getattr(again, field.name)
        if value != theirs:
            if field.name == "mask_padding":
                raise UserError(
                    f"Hugging Face's {layout.architecture} sees padding, but mask_padding = true: --leak_padding "
                    "accepts the difference, --to=pytorch writes a PyTorch module without it"
                )
            refuse(layout.architecture, f"it has {field.name} = {theirs}, not {value}")
    if refusal := _head_refusal(family, layout.dropout, model, head):
        raise UserError(f"Hugging Face's {layout.architecture} cannot have this head: {refusal}")
    if layout.dropout is not None and layout.dropout in family.dropouts:
        # None stands for the model's own rate.
        default, rate = family.dropouts[layout.dropout], head.dropout
        attributes[layout.dropout] = None if default is None and rate == model.dropout else rate
    if labels := getattr(head, "labels", None):
        attributes["id2label"] = {str(index): label for index, label in enumerate(labels)}
        attributes["label2id"] = {label: index for index, label in enumerate(labels)}
    if problem := getattr(head, "problem_type", None):
        attributes["problem_type"] = problem
    return attributes


def refuse(architecture: str, reason: str | None) -> None:
    """Raise Inexpressible where there is a reason why a class of theirs computes otherwise than our model."""
    if reason:
        raise Inexpressible(f"Hugging Face's {architecture} cannot be this model: {reason}")


def _head_refusal(family: Family, dropout: str | None, model: Any, head: Any) -> str | None:
    rate = getattr(head, "dropout", 0.0)
    if dropout not in family.dropouts:  # the model's own rate, or none
        own = model.dropout if dropout else 0.0
        if rate != own:
            return f"its head's dropout can only be {own}, not {rate}"
    if getattr(head, "hidden", None) is not None:
        if head.hidden != family.hidden(model):
            return f"its classification head has hidden = {family.hidden(model)}, not {head.hidden}"
        expected = rate if family.input_dropout else 0.0
        if head.input_dropout != expected:
            return f"its classification head's input_dropout can only be {expected}, not {head.input_dropout}"
    return None
