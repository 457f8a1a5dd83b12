"""Convert Hugging Face's config.json to model and head configs, and back."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from bertzoo.conversion.family import FIXED, IGNORED, SENTENCE, Family, Inexpressible
from bertzoo.core import config as loader
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.heads import KINDS

_CONFIG = "config.json"
_MOST_LABELS = 1_000_000


def read_model_config(family: Family, attributes: Mapping[str, Any], origin: str) -> Any:
    """Return the model config that config.json, at `origin`, describes; raises UserError naming a wrong attribute."""
    fixed = {name: value for name, value in {**FIXED, **family.fixed}.items() if name not in family.ignored}
    known = {a.theirs for a in family.attributes} | IGNORED | family.ignored | fixed.keys() | family.dropouts.keys()
    known |= family.more
    for name, value in attributes.items():
        if name not in known:
            raise UserError(
                f"{origin}: the attribute {name} = {value!r} is unknown, and may matter. Use a model without it."
            )
        if name in fixed and value != fixed[name]:
            raise UserError(
                f"{origin}: {name} = {value!r} is not supported. Use a model with {name} = {fixed[name]!r}."
            )
    fields: dict[str, Any] = {}
    for attribute in family.attributes:
        value = attributes.get(attribute.theirs, attribute.default)
        if attribute.values:
            if not isinstance(value, str) or value not in attribute.values:
                names = ", ".join(attribute.values)
                raise UserError(
                    f"{origin}: {attribute.theirs} = {value!r} is not supported. Use a model with one of {names}."
                )
            value = attribute.values[value]
        elif isinstance(value, list | tuple):  # a model config has lists for layers that differ
            raise UserError(
                f"{origin}: {attribute.theirs} = {value!r} differs between layers, but this format has one value for "
                "all. Use a model with one value."
            )
        if fields.setdefault(attribute.ours, value) != value:
            first = next(a.theirs for a in family.attributes if a.ours == attribute.ours)
            raise UserError(
                f"{origin}: {attribute.theirs} = {value!r} differs from {first} = {fields[attribute.ours]!r}, but "
                "bertzoo has one value for both. Use a model in which they agree."
            )
    try:
        return loader.from_dict(family.config, fields | family.read_more(attributes))
    except ConfigError as error:
        raise _with_their_names(origin, error, ((a.ours, a.theirs) for a in family.attributes)) from error


def _with_their_names(origin: str, error: ConfigError, names: Iterable[tuple[str, str]]) -> UserError:
    """Return a UserError: `error`, then config.json's names for its fields. names: (our field, name in config.json)."""
    words = {word.split(".")[0] for word in str(error).split()}
    translations = ", ".join(f"{ours} is called {theirs}" for ours, theirs in names if ours in words and ours != theirs)
    return UserError(f"{origin}: {error}" + (f" In this file {translations}." if translations else ""))


def read_head_config(
    family: Family, key: str, model: Any, attributes: Mapping[str, Any], pooler: bool, origin: str
) -> Any:
    """Return the head config that config.json describes; raises UserError if an attribute of the head is wrong.

    key: the head's key in `Family.heads`. pooler: whether the model has a pooler. origin: as in `read_model_config`.
    """
    name, dropout = family.heads[key].dropout, 0.0
    if name is not None:
        field = next((a.ours for a in family.attributes if a.theirs == name), None)
        dropout = getattr(model, field) if field else attributes.get(name, family.dropouts[name])
        dropout = model.dropout if dropout is None else dropout
    head: Any = KINDS[key.removesuffix(SENTENCE)]
    values: dict[str, Any] = {
        "sentence": key.endswith(SENTENCE),
        "labels": _labels(attributes, origin),
        "hidden": (family.hidden if head.kind == "sequence_classification" else family.token_hidden)(model),
        "input_dropout": dropout if family.input_dropout else 0.0,
        "dropout": dropout,
        "problem_type": attributes.get("problem_type"),
        "pooling": family.poolings.get(attributes.get("classifier_pooling", ""), "first"),
        "thresholds": attributes.get("thresholds"),
        "pooler": pooler,
    }
    fields = {field.name: values[field.name] for field in dataclasses.fields(head) if field.name in values}
    try:
        return loader.from_dict(head, fields)
    except ConfigError as error:
        names = [("labels", "id2label"), *((ours, name) for ours in ("dropout", "input_dropout") if name)]
        raise _with_their_names(origin, error, names) from error


def _labels(attributes: Mapping[str, Any], origin: str) -> list[Any]:
    labels = attributes.get("id2label")
    if labels is not None and not isinstance(labels, Mapping):
        raise UserError(
            f'{origin}: id2label = {labels!r} is not a table of labels by their numbers. Write it as {{"0": '
            '"negative", "1": "positive"}.'
        )
    if not labels:
        name, count = next(((n, attributes[n]) for n in ("num_labels", "_num_labels") if n in attributes), ("", 2))
        if type(count) is not int or not 1 <= count <= _MOST_LABELS:
            raise UserError(
                f"{origin}: {name} = {count!r} is not a number of labels. Use a whole number of 1 to {_MOST_LABELS:,}."
            )
        return [f"LABEL_{index}" for index in range(count)]
    try:
        return [labels[str(index)] for index in range(len(labels))]
    except KeyError as error:
        raise UserError(
            f"{origin}: id2label names {len(labels)} labels, but none has the number {error}. Number the labels from 0."
        ) from error


def head_key(head: Any) -> str:
    """Return a head config's key in `Family.heads`."""
    return f"{head.kind}{SENTENCE}" if getattr(head, "sentence", False) else head.kind


def build_config_json(family: Family, model: Any, head: Any) -> dict[str, Any]:
    """Return the contents of config.json for a model with its head.

    Raises Inexpressible if Hugging Face's class cannot represent the model. Raises UserError if the class cannot have
    the head, or reads padding that the model masks.
    """
    key = head_key(head)
    layout = family.heads[key]
    check_expressible(layout.architecture, family.unsupported(model, key))
    attributes: dict[str, Any] = {
        "architectures": [layout.architecture],
        "model_type": family.model_type,
        "dtype": "float32",
    }
    for attribute in family.attributes:
        value = getattr(model, attribute.ours)
        attributes[attribute.theirs] = next((name for name, ours in attribute.values.items() if ours == value), value)
    attributes |= family.write_more(model)
    try:
        again = read_model_config(family, attributes, _CONFIG)
    except UserError as error:
        raise Inexpressible(f"Hugging Face's {layout.architecture} cannot represent this model: {error}") from error
    for field in dataclasses.fields(model):
        value, theirs = getattr(model, field.name), getattr(again, field.name)
        if value != theirs:
            if field.name == "mask_padding":
                raise UserError(
                    f"Hugging Face's {layout.architecture} reads padding, but this model has mask_padding = true. Add "
                    "--leak_padding to accept the difference, or use --to=pytorch, which writes an equal PyTorch model."
                )
            check_expressible(layout.architecture, f"that class has {field.name} = {theirs}, not {value}")
    if layout.dropout is not None and layout.dropout in family.dropouts:
        # A default of None means the model's own rate.
        default, rate = family.dropouts[layout.dropout], head.dropout
        attributes[layout.dropout] = None if default is None and rate == model.dropout else rate
    if hasattr(head, "pooling") and family.poolings:
        attributes["classifier_pooling"] = next(
            (theirs for theirs, ours in family.poolings.items() if ours == head.pooling), head.pooling
        )
    if labels := getattr(head, "labels", None):
        attributes["id2label"] = {str(index): label for index, label in enumerate(labels)}
        attributes["label2id"] = {label: index for index, label in enumerate(labels)}
    if problem := getattr(head, "problem_type", None):
        attributes["problem_type"] = problem
    if thresholds := getattr(head, "thresholds", None):
        attributes["thresholds"] = [*thresholds]  # transformers ignores them
    back = read_head_config(family, key, model, attributes, head.pooler, _CONFIG)
    for name in ("dropout", "pooling", "hidden", "input_dropout"):
        if (value := getattr(head, name, None)) != (theirs := getattr(back, name, None)):
            raise UserError(
                f"Hugging Face's {layout.architecture} cannot have this head: in that class, the head has {name} = "
                f"{theirs}, not {value}. Use --to=pytorch instead."
            )
    return attributes


def check_expressible(architecture: str, reason: str | None) -> None:
    """Raise Inexpressible if there is a `reason` why Hugging Face's class `architecture` cannot represent our model."""
    if reason:
        raise Inexpressible(f"Hugging Face's {architecture} cannot represent this model: {reason}")
