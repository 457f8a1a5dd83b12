"""What a run starts from: another model's parameters under the run's objective, and the tokenizer that goes with them.

Its embedding and encoder are taken whole; a head is taken where the objective has the same one, and otherwise is fresh.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertzoo.conversion import tensors
from bertzoo.conversion.pretrained import Pretrained, fits
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.data.settings import Data
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.vocabulary import Tokenizer, check_size
from bertzoo.models import Compute, Model
from bertzoo.runs import any_model
from bertzoo.runs.pretrain_config import Pretrain
from bertzoo.train.state import shapes_of

BACKBONE = ("embedding", "encoder")
# The fields of a model config that no parameter depends on and no row without padding, beside what training alone does.
FREE = ("dropout", "attention_dropout", "initializer_range", "mask_padding")


@dataclass(frozen=True, kw_only=True)
class Start:
    """params: by path, those that are not drawn anew; tokenizer: what the corpus must have; record: for run.json;
    said: for a person, one line for each kind of what becomes of the source's parameters; frozen: what the objective
    reads beside its parameters.
    """

    name: ClassVar[str] = "from"  # of the record in run.json

    params: dict[str, np.ndarray]
    tokenizer: Tokenizer
    record: dict[str, Any]
    said: list[str]
    frozen: Any = None


def read(path: Path, recipe: Pretrain) -> Start:
    """What a run of `recipe` takes from the model at `path`; raises UserError where it is none or does not fit."""
    pretrained = replace(any_model.read(path), origin=str(path))
    changed = same_model(pretrained, recipe.model, "model")
    tokenizer, trusted = tokenizer_of(pretrained, recipe.data)
    params, said = _parameters(pretrained, recipe)
    digest = tensors.digest(pretrained.params | pretrained.generator)
    record: dict[str, Any] = {"path": str(path.resolve()), "parameters_sha256": digest}
    if "step" in pretrained.source:
        record["step"] = pretrained.source["step"]
    return Start(params=params, tokenizer=tokenizer, record=record, said=[*said, *changed, *trusted])


def same_model(pretrained: Pretrained, wanted: Model, table: str) -> list[str]:
    """What is said of fields that may differ from those of the config's `table`; raises ConfigError naming all others
    that do.
    """
    found = [line.split(": ", 1) for line in config.difference(pretrained.model, wanted)]
    both = {key: values.split(" -> ", 1) for key, values in found}
    strict = [key for key in both if key.split(".")[-1] not in FREE]
    if wrong := ["kind"] if "kind" in strict else strict:
        sides = "; ".join(f"{table}.{key} is {both[key][0]} there and {both[key][1]} here" for key in wrong)
        raise ConfigError(
            f"{pretrained.origin} is not the {table} of the config: {sides}; make [{table}] agree with it"
        )
    lines = ", ".join(f"{table}.{key} {there} -> {here}" for key, (there, here) in both.items())
    return [f"other than in {pretrained.origin}: {lines}"] if lines else []


def tokenizer_of(pretrained: Pretrained, data: Data) -> tuple[Tokenizer, list[str]]:
    """The source's tokenizer, and what is said of it; raises ConfigError where the config asks for another."""
    own, asked, origin = pretrained.tokenizer, data.tokenizer, pretrained.origin
    if not asked.path:
        if own is None:
            raise ConfigError(
                f"{origin} holds no tokenizer: give the vocabulary it was trained with as data.tokenizer.path"
            )
        if (found := tokenizers.unlike(asked, own.config)) is not None:
            raise ConfigError(
                f"[data.tokenizer] is not the tokenizer of {origin}: {found}; make the config agree with it"
            )
        check_size(own.vocab_size, asked.vocab_size, f"of {origin}")
        return own, []
    given = asked.load()
    if own is None:
        rows = pretrained.model.vocab_size
        if not fits(given.vocab_size, rows):
            raise ConfigError(
                f"data.tokenizer.path = {asked.path} has {given.vocab_size:,} entries, which does not match the "
                f"{rows:,} rows of the word table of {origin}"
            )
        return given, [f"{origin} holds no tokenizer: that its words are those of {asked.path} is taken on trust"]
    if (found := tokenizers.difference(given, own)) is not None:
        raise ConfigError(
            f"data.tokenizer.path = {asked.path} is not the tokenizer of {origin}, whose words would be taken for "
            f"others: {found}; leave the path out"
        )
    return own, []


def _parameters(pretrained: Pretrained, recipe: Pretrain) -> tuple[dict[str, np.ndarray], list[str]]:
    """The parameters that are kept, by path, and what is said of them; raises ConfigError unless the backbone fits."""
    shapes, padded = _shapes(recipe, replace(recipe.compute, vocab_multiple=1)), _shapes(recipe, recipe.compute)
    found = pretrained.params | pretrained.generator
    wanted, there = _heads(shapes), _heads(found)
    sentence = pretrained.source.get("sentence", recipe.objective.sentence)  # unknown: taken to be the same
    kept, fresh = [], []
    for head, names in wanted.items():
        other = [n for n in sorted(names | there.get(head, set())) if _shape(shapes, n) != _shape(found, n)]
        if other and head in BACKBONE:
            sizes = f"{_shape(found, other[0])} there and {_shape(shapes, other[0])} here"
            raise ConfigError(f"{pretrained.origin} is not the model of the config: {other[0]} has shape {sizes}")
        if head not in there:
            fresh.append(f"{head} (not there)")
        elif other:
            fresh.append(f"{head} (of other sizes there)")
        elif head == "sentence_head" and sentence != recipe.objective.sentence:
            fresh.append(f"{head} (trained for {sentence} there)")
        else:
            kept.append(head)
    said = [f"taken from {pretrained.origin}: {', '.join(kept)}"]
    if fresh:
        said.append(f"starting fresh: {', '.join(fresh)}")
    if left := [head for head in there if head not in wanted]:
        said.append(f"left out, as objective.kind = {recipe.objective.kind} has no place for it: {', '.join(left)}")
    params = {name: found[name] for head in kept for name in sorted(wanted[head])}
    return {name: padded_to(array, padded[name].shape) for name, array in params.items()}, said


def _shapes(recipe: Pretrain, compute: Compute) -> dict[str, Any]:
    """The shape of every parameter, by path."""
    return shapes_of(recipe.objective.build(recipe.model, compute))


def padded_to(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """With zeros for the spare rows of a vocabulary."""
    return np.pad(array, [(0, after - before) for before, after in zip(array.shape, shape, strict=True)])


def _heads(names: Iterable[str]) -> dict[str, set[str]]:
    """The names of parameters by what they belong to: the first part of their paths."""
    found = defaultdict(set)
    for name in sorted(names):
        found[name.split("/")[0]].add(name)
    return dict(found)


def _shape(arrays: dict[str, Any], name: str) -> tuple[int, ...] | None:
    return arrays[name].shape if name in arrays else None
