"""Read and write Hugging Face directories: config.json, tensors and tokenizer files."""

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.conversion import sentence_modules, tensors, tokenizers
from bertzoo.conversion.families import FAMILIES
from bertzoo.conversion.family import FIXED, IGNORED, SENTENCE, Family, Inexpressible
from bertzoo.conversion.pretrained import Pretrained, check_vocabulary, fits
from bertzoo.conversion.rules import TensorRule, Tensors, check_names, dense, to_ours, to_theirs
from bertzoo.core import config as loader
from bertzoo.core.config import nearest
from bertzoo.core.documents import read_json
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.data.tokenizers.byte_bpe import ByteBpeTokenizer
from bertzoo.data.tokenizers.sentencepiece import SentencePieceTokenizer
from bertzoo.heads import KINDS, NoHead, SentenceEmbedding, parameter_shapes

CONFIG = "config.json"
VOCABULARY_SIZE = "tokenizer_entries"  # bertzoo's key for a vocabulary smaller than the word embeddings


def read_huggingface(directory: Path) -> Pretrained:
    """Return the model in a directory, also of sentence-transformers; raises UserError naming the problem."""
    if not sentence_modules.has_modules(directory):
        return _read_transformer(directory)
    folders = sentence_modules.find_modules(directory)
    backbone = _read_transformer(folders["Transformer"])
    backbone = replace(backbone, source=backbone.source | stated_in_card(directory))
    return sentence_modules.add_modules(backbone, folders, directory)


def _read_transformer(directory: Path) -> Pretrained:
    path = directory / CONFIG
    config = read_json(path, advice="Download it again.", parse_float=_finite, parse_constant=_finite)
    if config.get("format") == "bertzoo":
        raise UserError(f"{directory} is an export that only PyTorch reads. Use the model that was exported.")
    if "model_type" not in config:
        raise UserError(f'{path} has no model_type, which names the kind of model. Add it, such as "bert".')
    kind = config["model_type"]
    families = {family.model_type: family for family in FAMILIES}
    if not isinstance(kind, str) or kind not in families:
        raise UserError(f"{path}: model_type = {kind!r} is not supported. Use a model of type {' or '.join(families)}.")
    family = families[kind]
    tokenizer_class = config.pop("tokenizer_class", None)  # checked below, with the vocabulary
    if type(size := config.pop(VOCABULARY_SIZE, None)) not in (int, type(None)):
        raise UserError(f"{path}: {VOCABULARY_SIZE} = {size!r} is no number of tokens. Remove it.")
    model = read_model_config(family, config, str(path))
    raw, file = tensors.read_weights(directory)
    named = family.split(_plain_names(family, raw, str(file)))
    key = _find_head(family, model, config, named, str(path))
    layout = family.heads[key]
    check_expressible(layout.architecture, family.unsupported(model, key))
    pooled = any(name.startswith(f"{family.pooler}.") for name in named) or not _has_pooler(family, model)
    head = read_head_config(family, key, model, config, pooled or layout.needs_pooler, str(path))
    rules = model_rules(family, model, head, prefix="")
    check_names(rules, named, str(file))  # before the shapes, which take a minute for 1,000 layers
    params = to_ours(rules, named, parameter_shapes(model, head), str(file))
    tokenizer = tokenizers.read_tokenizer(directory)
    tokenizers.check_class(tokenizer_class, None if tokenizer is None else tokenizer.config.kind, path)
    check_vocabulary(tokenizer, model.vocab_size, str(directory), size)
    source: dict[str, str | int] = {"format": "huggingface", "path": str(directory)}
    if getattr(head, "sentence", False):
        source["sentence"] = family.sentence
    source |= stated_in_card(directory)
    return Pretrained(model=model, head=head, params=params, tokenizer=tokenizer, origin=str(directory), source=source)


def stated_in_card(directory: Path) -> dict[str, str]:
    """Return license, language and base_model, if stated in the header of a directory's model card.

    If a field of the header has several values, the first one counts. Without a license in the card, the first line of
    LICENSE is the license.
    """
    card, fields = directory / "README.md", {}
    if card.is_file():
        text = _beginning(card)
        header = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
        pattern = r"^(license|license_name|language|base_model):[ \t]*(?:\n[ \t]*-[ \t]*)?[\"']?([\w.+/-]+)"
        fields = dict(re.findall(pattern, header[1], re.MULTILINE)) if header else {}
    custom = fields.pop("license_name", None)
    if fields.get("license") == "other" and custom:
        fields["license"] = custom
    if fields.get("license") in ("unknown", None):
        fields.pop("license", None)
        for file in (directory / name for name in ("LICENSE", "LICENSE.txt", "LICENSE.md")):
            lines = _beginning(file).splitlines() if file.is_file() else []
            if line := next((line.strip("# \t")[:80] for line in lines if line.strip("# \t")), None):
                return fields | {"license": line}
    return fields


def _beginning(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(1 << 20)


def _finite(text: str) -> float:
    """Return a JSON number as a float; raises ValueError for NaN and infinity, which Python's JSON reader accepts."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number


def write_huggingface(pretrained: Pretrained, directory: Path) -> None:
    """Write config.json, model.safetensors and tokenizer files into an empty directory.

    With the head SentenceEmbedding, also writes the modules of sentence-transformers. Raises Inexpressible if Hugging
    Face has no class for the model, UserError if no class has the model's head.
    """
    if isinstance(pretrained.head, SentenceEmbedding):
        names = parameter_shapes(pretrained.model, NoHead(pooler=False))
        backbone = {name: array for name, array in pretrained.params.items() if name in names}
        write_huggingface(replace(pretrained, head=NoHead(pooler=False), params=backbone), directory)
        return sentence_modules.write_modules(pretrained, directory)
    model, head, origin = pretrained.model, pretrained.head, pretrained.origin
    family = next((family for family in FAMILIES if family.config is type(model)), None)
    if family is None:
        raise Inexpressible(f"Hugging Face's transformers has no class for a model of kind {model.kind}")
    key = head_key(head)
    if key not in family.heads:
        name, hint = key.replace("_", " "), "Leave the head out with --head=none, or keep it with --to=pytorch."
        if key.endswith(SENTENCE):
            name, hint = f"{head.kind} and a sentence", f"Leave the sentence head out with --head={head.kind}."
        raise UserError(f"{origin}: Hugging Face has no {family.model_type} with a {name} head. {hint}")
    if family.heads[key].needs_pooler and _has_pooler(family, model) and not head.pooler:
        raise UserError(
            f"{origin}: Hugging Face's {family.heads[key].architecture} has a pooler, the model none. Use --to=pytorch."
        )
    config = build_config_json(family, model, head)
    # ConvBERT's default of pad_token_id is 1, and transformers does not train the embedding of that id.
    ids = {"pad": 0} if pretrained.tokenizer is None else vars(pretrained.tokenizer.specials)
    config |= {name: ids.get(token) for name, token in family.token_ids.items()}
    is_filled = not isinstance(tokenizer := pretrained.tokenizer, SentencePieceTokenizer | ByteBpeTokenizer)
    if not (is_filled or fits(tokenizer.vocab_size, model.vocab_size)):
        config[VOCABULARY_SIZE] = tokenizer.vocab_size
    prefix = "" if key == "none" else family.prefix
    theirs = family.join(to_theirs(model_rules(family, model, head, prefix), pretrained.params, origin))
    (directory / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    tensors.write_safetensors(theirs, directory / tensors.SAFE)
    if pretrained.tokenizer is not None:
        tokenizers.write_tokenizer(pretrained.tokenizer, directory, model)


def model_rules(family: Family, model: Any, head: Any, prefix: str) -> list[TensorRule]:
    """Return all tensor rules of a model with a head; `prefix` precedes the names of the backbone's tensors."""
    backbone = [*family.rules(model)]
    if family.pooler and _has_pooler(family, model) and head.pooler:
        backbone += dense("pooler", family.pooler, "D", "P")
    named = [rule._replace(theirs=prefix + rule.theirs) for rule in backbone]
    return [*named, *family.heads[head_key(head)].rules(model)]


def _has_pooler(family: Family, model: Any) -> bool:
    """Return whether a model has a pooler: its family must have one and, for MobileBERT, its config must too."""
    return family.pooler is not None and getattr(model, "pooler", True)


def _plain_names(family: Family, raw: Mapping[str, np.ndarray], origin: str) -> Tensors:
    """Return the tensors under transformers' current names, without the prefix, buffers, tied copies and empty tensors.

    Raises UserError if two tensors get the same name, or a tied copy differs from its original.
    """
    named: Tensors = {}
    for name, array in raw.items():
        plain = re.sub(r"(LayerNorm|layernorm|layer_norm)\.gamma$", r"\1.weight", name)
        plain = re.sub(r"(LayerNorm|layernorm|layer_norm)\.beta$", r"\1.bias", plain).removeprefix(family.prefix)
        # MobileBERT's extra output weights are empty if its word embeddings are as wide as its layers.
        if plain in ("embeddings.position_ids", "embeddings.token_type_ids") or array.size == 0:
            continue
        if plain in named:
            raise UserError(
                f"{origin} holds the tensor {name} twice, under two names. Save the model again with one name."
            )
        named[plain] = array
    for repeated, original in family.tied.items():
        if repeated not in named:
            continue
        array = named.pop(repeated)
        if original in named and not np.array_equal(named[original], array):
            raise UserError(
                f"{origin}: the tensor {repeated} differs from {original}, but this architecture shares the two. "
                "Save the model again with tied weights."
            )
        named.setdefault(original, array)
    return named


def _find_head(family: Family, model: Any, config: Mapping[str, Any], named: Tensors, origin: str) -> str:
    """Return the head's key in `Family.heads`, from config.json's architectures or, without them, from the tensors."""
    architectures = config.get("architectures")
    if not isinstance(architectures, list | None) or not all(isinstance(name, str) for name in architectures or ()):
        raise UserError(
            f'{origin}: architectures = {architectures!r} is not a list of names. Write it as ["BertForMaskedLM"].'
        )
    if not architectures:
        names = {kind: {rule.theirs for rule in layout.rules(model)} for kind, layout in family.heads.items()}
        sizes = {kind: len(head) for kind, head in names.items() if head <= named.keys()}
        fitting = [key for key, size in sizes.items() if size == max(sizes.values())]
        if len(fitting) > 1:
            classes = " or ".join(family.heads[key].architecture for key in fitting)
            raise UserError(
                f"{origin} has no architectures, and its tensors fit {classes}. Add architectures with one of them."
            )
        return fitting[0]
    keys = {layout.architecture: key for key, layout in family.heads.items()}
    if architectures[0] not in keys:
        raise UserError(f"{origin}: the architecture {architectures[0]!r} is unknown{nearest(architectures[0], keys)}")
    key = keys[architectures[0]]
    if (sentence_key := f"{key}{SENTENCE}") in family.heads:
        # The first releases call themselves BertForMaskedLM and hold both heads of pretraining.
        rules = family.heads[sentence_key].rules(model)
        if any(rule.theirs in named and rule.ours.startswith("sentence_head/") for rule in rules):
            return sentence_key
    return key


_MOST_LABELS = 1_000_000


def read_model_config(family: Family, attributes: Mapping[str, Any], origin: str) -> Any:
    """Return the model config that config.json, at `origin`, describes; raises UserError naming a wrong attribute."""
    fixed = {name: value for name, value in {**FIXED, **family.fixed}.items() if name not in family.ignored}
    allowed = {a.theirs for a in family.attributes} | IGNORED | family.ignored | fixed.keys() | family.dropouts.keys()
    allowed |= family.more
    for name, value in attributes.items():
        if name not in allowed:
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
        reread = read_model_config(family, attributes, CONFIG)
    except UserError as error:
        raise Inexpressible(f"Hugging Face's {layout.architecture} cannot represent this model: {error}") from error
    for field in dataclasses.fields(model):
        value, theirs = getattr(model, field.name), getattr(reread, field.name)
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
    reread = read_head_config(family, key, model, attributes, head.pooler, CONFIG)
    for name in ("dropout", "pooling", "hidden", "input_dropout"):
        if (value := getattr(head, name, None)) != (theirs := getattr(reread, name, None)):
            raise UserError(
                f"Hugging Face's {layout.architecture} cannot have this head: in that class, the head has {name} = "
                f"{theirs}, not {value}. Use --to=pytorch instead."
            )
    return attributes


def check_expressible(architecture: str, reason: str | None) -> None:
    """Raise Inexpressible if there is a `reason` why Hugging Face's class `architecture` cannot represent our model."""
    if reason:
        raise Inexpressible(f"Hugging Face's {architecture} cannot represent this model: {reason}")
