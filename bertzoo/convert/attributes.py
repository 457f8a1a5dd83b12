"""The other small table: config.json <-> the fields of a model config and of its head."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bertzoo import config as loader
from bertzoo.convert.family import FIXED, IGNORED, Family, Inexpressible
from bertzoo.errors import ConfigError, UserError
from bertzoo.models import tasks


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
        if attribute.values:
            if value not in attribute.values:
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
        raise UserError(f"{origin}: {error} ({_translation(family, str(error))})") from error


def _translation(family: Family, message: str) -> str:
    """Their names of our fields in a message."""
    return ", ".join(f"{a.ours} is {a.theirs}" for a in family.attributes if a.ours in message.split())


def read_head(family: Family, key: str, model: Any, attributes: Mapping[str, Any], pooler: bool, origin: str) -> Any:
    """The head config of a class (`key` as in `Family.heads`), as config.json describes it."""
    dropout = _dropout(family, key, model, attributes)
    labels = tuple(_labels(attributes, origin))
    match key:
        case "none":
            return tasks.NoHead(pooler=pooler)
        case "masked" | "masked_sentence":
            return tasks.MaskedLanguageModel(sentence=key == "masked_sentence", pooler=pooler)
        case "token_classification":
            return tasks.TokenClassification(labels=labels, dropout=dropout, pooler=pooler)
        case "replaced":
            return tasks.ReplacedTokens()
        case "span":
            return tasks.SpanExtraction(dropout=dropout, pooler=pooler)
        case "sequence_classification":
            return tasks.SequenceClassification(
                labels=labels,
                hidden=family.hidden(model),  # pyright: ignore[reportArgumentType] (one of the literals)
                input_dropout=dropout if family.input_dropout else 0.0,
                dropout=dropout,
                problem_type=attributes.get("problem_type"),
                pooler=pooler,
            )
    raise ValueError(f"no head config for {key}")


def _dropout(family: Family, key: str, model: Any, attributes: Mapping[str, Any]) -> float:
    name = family.heads[key].dropout
    if name is None:
        return 0.0
    own = next((a.ours for a in family.attributes if a.theirs == name), None)
    value = getattr(model, own) if own else attributes.get(name, family.dropouts[name])
    return model.dropout if value is None else value


def _labels(attributes: Mapping[str, Any], origin: str) -> list[str]:
    named = attributes.get("id2label")
    if not named:
        count = attributes.get("num_labels", attributes.get("_num_labels", 2))
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
