"""Start a run from another model's parameters and tokenizer.

The embedding and the encoder are copied whole. A head is copied if the run's objective has the same head; otherwise
it is drawn from the seed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

import numpy as np

from bertzoo.conversion import tensors
from bertzoo.conversion.pretrained import Pretrained, fits, inherited
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import Location, resolve_name
from bertzoo.data.settings import Data
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.vocabulary import Tokenizer, check_size
from bertzoo.models import Model
from bertzoo.runs import load_model
from bertzoo.runs.configs import Pretrain
from bertzoo.train.state import shapes_of

BACKBONE = ("embedding", "encoder")
# Fields of a model config that may differ: outside training, they change no output of a row without padding.
FREE = ("dropout", "attention_dropout", "initializer_range", "mask_padding")


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """Parameters and tokenizer that a new run takes from another model, which run.json records as {key: record}.

    params: initial parameters by path; all others are drawn from the seed. tokenizer: the one that the corpus must
    have. report: lines that tell the user which parameters are copied.
    frozen: parameters that the objective reads but does not train, such as a teacher's.
    """

    key: Literal["from", "teacher"] = "from"
    params: dict[str, np.ndarray]
    tokenizer: Tokenizer
    record: dict[str, Any]
    report: list[str]
    frozen: Any = None


@dataclass(frozen=True, kw_only=True)
class Match:
    """The comparison of a source's and a target model's modules; a module is the first part of a parameter's path.

    taken: modules to copy. fresh: {module to draw from the seed: reason}. left: modules that only the source has.
    """

    taken: list[str] = field(default_factory=list)
    fresh: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    def report(self, origin: str) -> list[str]:
        """Return lines that tell the user which modules are copied from `origin`, drawn from the seed, or left out."""
        lines = [f"taken from {origin}: {', '.join(self.taken)}"]
        if self.fresh:
            lines.append("starting fresh: " + ", ".join(f"{name} ({why})" for name, why in self.fresh.items()))
        if self.left:
            lines.append(f"left out, because this model has no place for it: {', '.join(self.left)}")
        return lines


def match_parameters(
    source: Mapping[str, Any], target: Mapping[str, Any], origin: str, fresh: Mapping[str, str] | None = None
) -> Match:
    """Match two sets of parameters (path -> anything with a shape) module by module.

    A module is copied if its parameters have the same names and shapes in both sets. fresh: {module never to copy:
    reason}. Raises ConfigError if the embedding or the encoder differs.
    """
    match, target_modules, source_modules = Match(), _modules(target), _modules(source)
    here, there = ({name: array.shape for name, array in arrays.items()} for arrays in (target, source))
    for module, names in target_modules.items():
        every = sorted(names | source_modules.get(module, set()))
        differing = [name for name in every if here.get(name) != there.get(name)]
        if differing and module in BACKBONE:
            name = differing[0]
            if name not in there:
                raise ConfigError(f"{origin} lacks {name} of shape {here[name]}. Use a model that [model] describes.")
            raise ConfigError(
                f"{origin} does not fit [model]: {name} has shape {there[name]} there, but the config makes it "
                f"{here.get(name)}. Correct [model] or use another model."
            )
        if module not in source_modules:
            match.fresh[module] = "not in the source"
        elif differing:
            match.fresh[module] = "another size in the source"
        elif fresh and module in fresh:
            match.fresh[module] = fresh[module]
        else:
            match.taken.append(module)
    match.left.extend(module for module in source_modules if module not in target_modules)
    return match


def read_warm_start(path: Location, recipe: Pretrain) -> WarmStart:
    """Return what a new run takes from the model at `path`; raises UserError if the model does not fit `recipe`."""
    source = replace(load_model.read_model(path), origin=str(path))
    changed = check_same_model(source, recipe.model, "model")
    tokenizer, unverified = match_tokenizer(source, recipe.data)
    arrays = source.params | source.unused
    shapes = shapes_of(recipe.objective.build(recipe.model, recipe.compute))
    sentence = source.source.get("sentence", recipe.objective.sentence)  # if unknown, assume the same
    fresh = {"sentence_head": f"trained for {sentence}"} if sentence != recipe.objective.sentence else {}
    match = match_parameters(arrays, shapes, source.origin, fresh)
    return WarmStart(
        params={name: arrays[name] for name in shapes if name.split("/")[0] in match.taken},
        tokenizer=tokenizer,
        record=origin_record(source, path),
        report=[*match.report(source.origin), *changed, *unverified],
    )


def origin_record(source: Pretrained, path: Location) -> dict[str, Any]:
    """Return the entry of run.json about an initial model or a teacher: path, hash, step, license and language."""
    digest = tensors.digest(source.params | source.unused)
    record: dict[str, Any] = {"path": resolve_name(path), "parameters_sha256": digest}
    return record | inherited(source.source) | ({"step": source.source["step"]} if "step" in source.source else {})


def check_same_model(source: Pretrained, model: Model, table: str) -> list[str]:
    """Raise ConfigError if the source's model config differs from `model`, except in FREE fields such as dropout.

    table: name of `model` in errors. Returns a list with one line about the FREE fields that differ, or [].
    """
    lines = [line.split(": ", 1) for line in config.difference(source.model, model)]
    both = {key: values.split(" -> ", 1) for key, values in lines}
    strict = [key for key in both if key.split(".")[-1] not in FREE]
    if wrong := ["kind"] if "kind" in strict else strict:
        sides = "; ".join(f"{table}.{key} is {both[key][0]} there, but {both[key][1]} in the config" for key in wrong)
        raise ConfigError(f"{source.origin} does not fit [{table}]: {sides}. Correct [{table}] or use another model.")
    changed = ", ".join(f"{table}.{key} {there} -> {here}" for key, (there, here) in both.items())
    return [f"changed from {source.origin}: {changed}"] if changed else []


def match_tokenizer(source: Pretrained, data: Data) -> tuple[Tokenizer, list[str]]:
    """Return the source's tokenizer (or the config's, if the source has none), and lines for the user.

    Raises ConfigError if the two tokenizers differ, or if neither exists.
    """
    own, configured, origin = source.tokenizer, data.tokenizer, source.origin
    if not configured.path:
        if own is None:
            raise ConfigError(
                f"{origin} holds no tokenizer. Set data.tokenizer.path to the vocabulary that the model uses."
            )
        if (difference := tokenizers.unlike(configured, own.config)) is not None:
            raise ConfigError(
                f"[data.tokenizer] differs from the tokenizer of {origin}: {difference}. Correct it or the model."
            )
        check_size(own.vocab_size, configured.vocab_size, f"of {origin}")
        return own, []
    tokenizer = configured.load()
    if own is None:
        rows = source.model.vocab_size
        if not fits(tokenizer.vocab_size, rows):
            raise ConfigError(
                f"data.tokenizer.path = {configured.path} has {tokenizer.vocab_size:,} entries, but the embedding of "
                f"{origin} has {rows:,} rows. Use the vocabulary that the model was trained with."
            )
        return tokenizer, [f"{origin} holds no tokenizer, so nothing proves that {configured.path} is its vocabulary"]
    if (difference := tokenizers.difference(tokenizer, own)) is not None:
        raise ConfigError(
            f"data.tokenizer.path = {configured.path} is not the tokenizer of {origin}: {difference}. Remove the path "
            "to use the model's tokenizer."
        )
    return own, []


def _modules(names: Iterable[str]) -> dict[str, set[str]]:
    """Return {module: parameter paths}; the module is the first part of a path."""
    return {module: set(group) for module, group in groupby(sorted(names), lambda name: name.split("/")[0])}
