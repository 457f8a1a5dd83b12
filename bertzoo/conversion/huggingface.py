"""Read and write Hugging Face directories: config.json, tensors and tokenizer files."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.conversion import attributes, sentence_modules, tensors, tokenizers
from bertzoo.conversion.families import FAMILIES
from bertzoo.conversion.family import SENTENCE, Family, Inexpressible
from bertzoo.conversion.pretrained import Pretrained, check_vocabulary
from bertzoo.conversion.rules import TensorRule, Tensors, check_names, dense, to_ours, to_theirs
from bertzoo.core.config import nearest
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.heads import NoHead, SentenceEmbedding, parameter_shapes

CONFIG = "config.json"


def read_huggingface(directory: Path) -> Pretrained:
    """Return the model in a directory, also of sentence-transformers; raises UserError naming what is wrong with it."""
    if not sentence_modules.has_modules(directory):
        return _read_transformer(directory)
    folders = sentence_modules.find_modules(directory)
    return sentence_modules.add_modules(_read_transformer(folders["Transformer"]), folders, directory)


def _read_transformer(directory: Path) -> Pretrained:
    path = directory / CONFIG
    try:
        config = read_json(path, parse_float=_finite, parse_constant=_finite)
        if config.get("format") == "bertzoo":
            raise UserError(f"{directory} is an export that only PyTorch reads. Use the model it was made from.")
        kind = config["model_type"]
    except KeyError as error:
        raise UserError(f'{path} has no model_type, which names the kind of model. Add it, such as "bert".') from error
    except ValueError as error:
        raise UserError(f"{path} is not a config of a model: {error}. Download it again.") from error
    families = {family.model_type: family for family in FAMILIES}
    if not isinstance(kind, str) or kind not in families:
        raise UserError(f"{path}: model_type = {kind!r} is not supported. Use a model of type {' or '.join(families)}.")
    family = families[kind]
    tokenizer_class = config.pop("tokenizer_class", None)  # checked below, with the vocabulary
    model = attributes.read_model_config(family, config, str(path))
    raw, file = tensors.read_weights(directory)
    named = family.split(_plain_names(family, raw, str(file)))
    key = _find_head(family, model, config, named, str(path))
    layout = family.heads[key]
    attributes.check_expressible(layout.architecture, family.unsupported(model, key))
    pooled = any(name.startswith(f"{family.pooler}.") for name in named) or not _has_pooler(family, model)
    head = attributes.read_head_config(family, key, model, config, pooled or layout.needs_pooler, str(path))
    rules = model_rules(family, model, head, prefix="")
    check_names(rules, named, str(file))  # before the shapes, which take a minute for 1,000 layers
    params = to_ours(rules, named, parameter_shapes(model, head), str(file))
    tokenizer = tokenizers.read_tokenizer(directory)
    tokenizers.check_class(tokenizer_class, None if tokenizer is None else tokenizer.config.kind, path)
    check_vocabulary(tokenizer, model.vocab_size, str(directory))
    source: dict[str, str | int] = {"format": "huggingface", "path": str(directory)}
    if getattr(head, "sentence", False):
        source["sentence"] = family.sentence
    source |= stated_in_card(directory)
    return Pretrained(model=model, head=head, params=params, tokenizer=tokenizer, origin=str(directory), source=source)


def stated_in_card(directory: Path) -> dict[str, str]:
    """Return license, language and base_model, if stated in the header of a directory's model card.

    If an entry of the header has several values, the first one counts. Without a license in the card, the first line of
    LICENSE is the license.
    """
    card, stated = directory / "README.md", {}
    if card.is_file():
        text = _beginning(card)
        header = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
        pattern = r"^(license|license_name|language|base_model):[ \t]*(?:\n[ \t]*-[ \t]*)?[\"']?([\w.+/-]+)"
        stated = dict(re.findall(pattern, header[1], re.MULTILINE)) if header else {}
    named = stated.pop("license_name", None)
    if stated.get("license") == "other" and named:
        stated["license"] = named
    if stated.get("license") in ("unknown", None):
        stated.pop("license", None)
        for file in (directory / name for name in ("LICENSE", "LICENSE.txt", "LICENSE.md")):
            lines = _beginning(file).splitlines() if file.is_file() else []
            if line := next((line.strip("# \t")[:80] for line in lines if line.strip("# \t")), None):
                return stated | {"license": line}
    return stated


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
    key = attributes.head_key(head)
    if key not in family.heads:
        name, hint = key.replace("_", " "), "Leave the head out with --head=none, or keep it with --to=pytorch."
        if key.endswith(SENTENCE):
            name, hint = f"{head.kind} and a sentence", f"Leave the sentence head out with --head={head.kind}."
        raise UserError(f"{origin}: Hugging Face has no {family.model_type} with a {name} head. {hint}")
    if family.heads[key].needs_pooler and _has_pooler(family, model) and not head.pooler:
        raise UserError(
            f"{origin}: Hugging Face's {family.heads[key].architecture} has a pooler, the model none. Use --to=pytorch."
        )
    config = attributes.build_config_json(family, model, head)
    # ConvBERT's default of pad_token_id is 1, and transformers does not train the embedding of that id.
    ids = {"pad": 0} if pretrained.tokenizer is None else vars(pretrained.tokenizer.specials)
    config |= {name: ids.get(token) for name, token in family.token_ids.items()}
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
    return [*named, *family.heads[attributes.head_key(head)].rules(model)]


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
        # MobileBERT's extra output weights are empty if its word table is as wide as its layers.
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
    known = {layout.architecture: key for key, layout in family.heads.items()}
    if architectures[0] not in known:
        raise UserError(f"{origin}: the architecture {architectures[0]!r} is unknown{nearest(architectures[0], known)}")
    key = known[architectures[0]]
    if (both := f"{key}{SENTENCE}") in family.heads:
        # The first releases call themselves BertForMaskedLM and hold both heads of pretraining.
        rules = family.heads[both].rules(model)
        if any(rule.theirs in named and rule.ours.startswith("sentence_head/") for rule in rules):
            return both
    return key
