"""The teacher of a transfer: its parameters on the devices, and what a student begins with of them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import flax.traverse_util
import jax
import numpy as np
from flax import linen as nn

from bertzoo.conversion import tensors
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.models.generator import generator_config
from bertzoo.models.partial import stack
from bertzoo.runs import any_model, phases
from bertzoo.runs.transfer_config import Transfer
from bertzoo.runs.warm_start import FREE, padded_to, same_model, tokenizer_of
from bertzoo.train.state import name_of, named, shapes_of


@dataclass(frozen=True, kw_only=True)
class Taught:
    """frozen: the teacher's parameters, placed; params: by path, those that the student begins with; tokenizer: what
    the corpus must have; record: for run.json; said: for a person.
    """

    name: ClassVar[str] = "teacher"  # of the record in run.json

    frozen: Any
    params: dict[str, np.ndarray]
    tokenizer: Tokenizer
    record: dict[str, Any]
    said: list[str]


def read(path: Path, recipe: Transfer, mesh: jax.sharding.Mesh) -> Taught:
    """The teacher at `path`; raises UserError where that is no model, not the config's, or lacks what is read of it."""
    pretrained = replace(any_model.read(path), origin=str(path))
    changed = same_model(pretrained, recipe.teacher, "teacher")
    _same_objective(pretrained, recipe)
    tokenizer, trusted = tokenizer_of(pretrained, recipe.data)
    params, said = _copied(pretrained, recipe)
    digest = tensors.digest(pretrained.params | pretrained.generator)
    record: dict[str, Any] = {"path": str(path.resolve()), "parameters_sha256": digest}
    return Taught(
        frozen=_frozen(pretrained, recipe, mesh),
        params=params,
        tokenizer=tokenizer,
        record=record,
        said=[*said, *changed, *trusted],
    )


def _same_objective(pretrained: Pretrained, recipe: Transfer) -> None:
    """Raise ConfigError where a run was trained under another objective than the config says of it; what is no run does
    not say.
    """
    if pretrained.source.get("format") != "run":
        return
    asked: Any = recipe.teacher_objective
    kind, sentence = pretrained.head.kind, pretrained.source["sentence"]
    if asked.kind != kind:
        raise ConfigError(
            f'{pretrained.origin} was trained under objective.kind = "{kind}", but teacher_objective.kind = '
            f'"{asked.kind}"; make them agree'
        )
    if asked.sentence != sentence:
        raise ConfigError(
            f'{pretrained.origin} was trained with objective.sentence = "{sentence}", but teacher_objective.sentence = '
            f'"{asked.sentence}"; make them agree'
        )


def _frozen(pretrained: Pretrained, recipe: Transfer, mesh: jax.sharding.Mesh) -> Any:
    teacher, wanted = phases.teacher_of(recipe), phases.teacher_shapes(recipe, mesh)
    whole = replace(recipe, compute=replace(recipe.compute, vocab_multiple=1))
    shapes = nn.unbox(phases.teacher_of(whole).shapes())  # without the spare rows of the vocabulary
    sources = {"model": (teacher.model, pretrained)}
    if teacher.generator is not None:
        sources["generator"] = (teacher.generator, _generator(pretrained, recipe))
    made = {}
    for name, (model, source) in sources.items():
        asked = {path.split("/")[0] for path in named(wanted[name])}
        if missing := sorted(asked - {path.split("/")[0] for path in source.params}):
            raise ConfigError(
                f"{pretrained.origin} has no {missing[0]}, whose distribution over masked tokens would be distilled: "
                "give a model with one, or knowledge.ground_truth = 1.0"
            )
        own = {path: array for path, array in source.params.items() if path.split("/")[0] in asked}
        nested = flax.traverse_util.unflatten_dict(own, sep="/")
        made[name] = stack(nested, model.encoder.layers)  # type: ignore[attr-defined]

    def place(path: tuple, want: jax.ShapeDtypeStruct, shape: jax.ShapeDtypeStruct, array: np.ndarray) -> jax.Array:
        if array.shape != shape.shape:
            raise ConfigError(
                f"{pretrained.origin} is not the teacher of the config: {name_of(path)} has shape {array.shape} there "
                f"and {shape.shape} here"
            )
        padded = padded_to(array, want.shape).astype(want.dtype)
        return jax.make_array_from_callback(padded.shape, want.sharding, padded.__getitem__)

    return jax.tree.map_with_path(place, wanted, shapes, made)


def _generator(pretrained: Pretrained, recipe: Transfer) -> Pretrained:
    """The generator beside a discriminator; raises ConfigError where there is none, or one of other sizes."""
    asked: Any = recipe.teacher_objective
    if "masked" not in pretrained.others:
        raise ConfigError(
            f"knowledge.ground_truth = {recipe.knowledge.ground_truth} distils a generator's distribution over masked "
            f'tokens where teacher_objective.kind = "{asked.kind}", but {pretrained.origin} has no generator: give '
            "the run that trained it, or knowledge.ground_truth = 1.0"
        )
    found, wanted = pretrained.others["masked"], generator_config(recipe.teacher, asked.generator_width)
    lines = [line for line in config.difference(found.model, wanted) if line.split(": ")[0] not in FREE]
    if lines:
        raise ConfigError(
            f"{pretrained.origin} has another generator than teacher_objective.generator_width = "
            f"{asked.generator_width} describes: {'; '.join(lines)}; give the width it was trained with"
        )
    return found


def _copied(pretrained: Pretrained, recipe: Transfer) -> tuple[dict[str, np.ndarray], list[str]]:
    """The student's first parameters that are the teacher's, padded, and what is said of all outside its layers."""
    shapes = shapes_of(phases.of(recipe)[-1].objective)
    sentence = pretrained.source.get("sentence", recipe.objective.sentence)  # unknown: taken to be the same
    names = [
        name
        for name in phases.copied_names(recipe)
        if name in pretrained.params
        and not (name.startswith("sentence_head/") and sentence != recipe.objective.sentence)
    ]
    params = {name: padded_to(pretrained.params[name], shapes[name].shape) for name in names}
    outside = [name for name in shapes if not name.startswith(phases.ENCODER)]
    fresh = [name for name in outside if name not in params and not name.startswith("projections/")]
    said = [f"copied from the teacher: {_modules(names)}"] if names else ["nothing is copied from the teacher"]
    if fresh:
        said.append(f"starting fresh, beside the layers: {_modules(fresh)}")
    return params, said


def _modules(names: list[str]) -> str:
    """The modules that parameters belong to, each once."""
    return ", ".join(dict.fromkeys(name.rsplit("/", 1)[0] for name in names))
