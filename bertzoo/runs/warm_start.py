"""Start a run from another model's parameters and tokenizer, or a student from its teacher's.

The embedding and the encoder of an initial model are copied whole. A head is copied if the run's objective has the same
head; otherwise it is drawn from the seed.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Literal

import flax.traverse_util
import jax
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
from bertzoo.models.partial import stack
from bertzoo.models.replaced import generator_config
from bertzoo.runs import experiments, load_model
from bertzoo.runs.configs import Pretrain, Transfer
from bertzoo.train.experiment import Experiment
from bertzoo.train.state import name_of, named, put, shapes_of

BACKBONE = ("embedding", "encoder")
# Fields of a model config that may differ: outside training, they change no output of a row without padding.
FREE = ("dropout", "attention_dropout", "initializer_range", "mask_padding")


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """Parameters and tokenizer that a new run takes from another model, which run.json records as {key: record}.

    params: initial parameters by path; all others are drawn from the seed. tokenizer: the one that the corpus must
    have. report: console lines on the copied parameters.
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
    """The comparison of a source's and a target model's modules; a module is the first name in a parameter's path.

    copied: modules to copy. fresh: {module to draw from the seed: reason}. unused: modules that only the source has.
    """

    copied: list[str] = field(default_factory=list)
    fresh: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)

    def report(self, origin: str) -> list[str]:
        """Return console lines on the modules that are copied from `origin`, drawn from the seed, or left out."""
        lines = [f"taken from {origin}: {', '.join(self.copied)}"]
        if self.fresh:
            lines.append("starting fresh: " + ", ".join(f"{name} ({why})" for name, why in self.fresh.items()))
        if self.unused:
            lines.append(f"left out, because this model has no such module: {', '.join(self.unused)}")
        return lines


def match_parameters(
    source: Mapping[str, Any], target: Mapping[str, Any], origin: str, fresh: Mapping[str, str] | None = None
) -> Match:
    """Match two sets of parameters (path -> anything with a shape) module by module.

    A module is copied if its parameters have the same names and shapes in both sets. fresh: {module never to copy:
    reason}. Raises ConfigError if the embedding or the encoder differs.
    """
    match, target_modules, source_modules = Match(), _modules(target), _modules(source)
    shapes, expected = ({name: array.shape for name, array in arrays.items()} for arrays in (source, target))
    for module, names in target_modules.items():
        paths = sorted(names | source_modules.get(module, set()))
        differing = [name for name in paths if expected.get(name) != shapes.get(name)]
        if differing and module in BACKBONE:
            name = differing[0]
            if name not in shapes:
                raise ConfigError(f"{origin} lacks {name} of shape {expected[name]}. Use a model that fits [model].")
            raise ConfigError(
                f"{origin} does not fit [model]: {name} has shape {shapes[name]} there, but the config makes it "
                f"{expected.get(name)}. Correct [model] or use another model."
            )
        if module not in source_modules:
            match.fresh[module] = "not in the source"
        elif differing:
            match.fresh[module] = "another size in the source"
        elif fresh and module in fresh:
            match.fresh[module] = fresh[module]
        else:
            match.copied.append(module)
    match.unused.extend(module for module in source_modules if module not in target_modules)
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
        params={name: arrays[name] for name in shapes if name.split("/")[0] in match.copied},
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
    existing, configured, origin = source.tokenizer, data.tokenizer, source.origin
    if not configured.path:
        if existing is None:
            raise ConfigError(
                f"{origin} holds no tokenizer. Set data.tokenizer.path to the vocabulary that the model uses."
            )
        if (difference := tokenizers.unlike(configured, existing.config)) is not None:
            raise ConfigError(
                f"[data.tokenizer] differs from the tokenizer of {origin}: {difference}. Correct it or the model."
            )
        check_size(existing.vocab_size, configured.vocab_size, f"of {origin}")
        return existing, []
    tokenizer = configured.load()
    if existing is None:
        rows = source.model.vocab_size
        if not fits(tokenizer.vocab_size, rows):
            raise ConfigError(
                f"data.tokenizer.path = {configured.path} has {tokenizer.vocab_size:,} tokens, but the embedding of "
                f"{origin} has {rows:,} rows. Use the vocabulary that the model was trained with."
            )
        return tokenizer, [f"{origin} holds no tokenizer, so nothing proves that {configured.path} is its vocabulary"]
    if (difference := tokenizers.difference(tokenizer, existing)) is not None:
        raise ConfigError(
            f"data.tokenizer.path = {configured.path} is not the tokenizer of {origin}: {difference}. Remove the path "
            "to use the model's tokenizer."
        )
    return existing, []


def _modules(names: Iterable[str]) -> dict[str, set[str]]:
    """Return {module: parameter paths}; the module is the first name in a path."""
    return {module: set(group) for module, group in groupby(sorted(names), lambda name: name.split("/")[0])}


def read_teacher(path: Location, recipe: Transfer, built: Experiment, folder: Path | None = None) -> WarmStart:
    """Return a student's initial parameters from the teacher at `path`; `frozen` holds the teacher's parameters.

    folder: directory of the file that holds the teacher's parameters on CPUs (`map_array`); None: that of temporary
    files. Raises UserError if `path` is no model or not the config's teacher, or lacks parameters that are read.
    """
    source = replace(load_model.read_model(path), origin=str(path))
    changed = check_same_model(source, recipe.teacher, "teacher")
    if source.source.get("format") == "run":
        objective: Any = recipe.teacher_objective
        for key, there, here in (
            ("kind", source.head.kind, objective.kind),
            ("sentence", source.source["sentence"], objective.sentence),
        ):
            if there != here:
                raise ConfigError(
                    f'{source.origin} was trained with objective.{key} = "{there}", but teacher_objective.{key} = '
                    f'"{here}". Set it to "{there}", or use another teacher.'
                )
    tokenizer, unverified = match_tokenizer(source, recipe.data)
    params, copied = _copied(source, recipe, shapes_of(built.setups[-1].objective))
    return WarmStart(
        key="teacher",
        frozen=_frozen(source, recipe, built, folder),
        params=params,
        tokenizer=tokenizer,
        record={key: value for key, value in origin_record(source, path).items() if key != "step"},
        report=[*copied, *changed, *unverified],
    )


def map_array(array: np.ndarray, file: IO[bytes]) -> np.ndarray:
    """Append an array to a file, and return it mapped into memory from there.

    On CPUs, JAX computes with mapped arrays in place. A page that no step reads takes no memory, so a stage of
    progressive transfer holds only those of the teacher's layers that it runs.
    """
    end = file.seek(0, os.SEEK_END)
    start = file.seek(end + -end % 64)  # on CPUs, JAX copies arrays that start elsewhere
    file.write(array.tobytes())
    file.flush()
    return np.memmap(file, array.dtype, "r", start, array.shape)


def _frozen(source: Pretrained, recipe: Transfer, built: Experiment, folder: Path | None) -> Any:
    """Return the teacher's parameters with the dtypes and shardings of `built.frozen_shapes`."""
    objective: Any = built.setups[-1].objective
    teacher, targets = objective.teacher, built.frozen_shapes
    stacked = experiments.stacks_teacher(built.mesh)
    sources = {"model": (teacher.model, source)}
    if teacher.generator is not None:
        sources["generator"] = (teacher.generator, _generator(source, recipe))
    params = {}
    for name, (model, loaded) in sources.items():
        modules = {path.split("/")[0] for path in named(targets[name])}
        if missing := sorted(modules - {path.split("/")[0] for path in loaded.params}):
            raise ConfigError(
                f"{source.origin} has no {missing[0]}, but the student learns the teacher's distribution over masked "
                f"tokens. Use a teacher with {missing[0]}, or set knowledge.ground_truth = 1.0."
            )
        arrays = {path: array for path, array in loaded.params.items() if path.split("/")[0] in modules}
        nested = flax.traverse_util.unflatten_dict(arrays, sep="/")
        params[name] = stack(nested, model.encoder.layers) if stacked else nested  # type: ignore[attr-defined]

    def put_array(path: tuple, target: jax.ShapeDtypeStruct, array: np.ndarray) -> jax.Array:
        if array.shape != target.shape:
            raise ConfigError(
                f"{source.origin} does not fit [teacher]: {name_of(path)} has shape {array.shape} there, but the "
                f"config makes it {target.shape}. Correct [teacher] or use another teacher."
            )
        array = array.astype(target.dtype)
        return put(array if stacked else map_array(array, file), target)

    with tempfile.TemporaryFile(dir=folder) as file:  # has no name, and ends with the process
        return jax.tree.map_with_path(put_array, targets, params)


def _generator(source: Pretrained, recipe: Transfer) -> Pretrained:
    """Return the generator of an ELECTRA teacher; raises ConfigError if it is missing or does not fit the config."""
    configured: Any = recipe.teacher_objective
    generator = source.generator
    if generator is None:
        raise ConfigError(
            f"{source.origin} has no generator, from which the student learns with teacher_objective.kind = "
            f'"{configured.kind}" and knowledge.ground_truth = {recipe.knowledge.ground_truth}. Name the run that '
            "trained the teacher, or set knowledge.ground_truth = 1.0."
        )
    expected = generator_config(recipe.teacher, configured.generator_width)
    lines = [line for line in config.difference(generator.model, expected) if line.split(": ")[0] not in FREE]
    if lines:
        raise ConfigError(
            f"the generator of {source.origin} does not fit teacher_objective.generator_width = "
            f"{configured.generator_width}: {'; '.join(lines)}. Set the width that it was trained with."
        )
    return generator


def _copied(
    source: Pretrained, recipe: Transfer, shapes: Mapping[str, jax.ShapeDtypeStruct]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return {path: array} of the parameters that the student copies from the teacher, and lines for the user.

    shapes: the student's parameters by path.
    """
    sentence = source.source.get("sentence", recipe.objective.sentence)  # if unknown, assume the same
    copied = [
        name
        for name in experiments.copied_names(recipe)
        if name in source.params and not (name.startswith("sentence_head/") and sentence != recipe.objective.sentence)
    ]
    params = {name: source.params[name] for name in copied}
    outside = [name for name in shapes if not name.startswith(experiments.ENCODER)]
    fresh = [name for name in outside if name not in params and not name.startswith("projections/")]
    lines = [f"copied from the teacher: {_owners(copied)}"] if copied else ["nothing is copied from the teacher"]
    if fresh:
        lines.append(f"starting fresh outside the layers: {_owners(fresh)}")
    return params, lines


def _owners(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(name.rsplit("/", 1)[0] for name in names))
