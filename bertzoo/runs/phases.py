"""What every stage of a recipe trains and by which loss, as `train.Job` wants it; and the teacher's modules."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.core.errors import ConfigError
from bertzoo.models.generator import generator_config
from bertzoo.models.partial import names
from bertzoo.nn import Dense
from bertzoo.nn.flops import matmul_flops
from bertzoo.objectives import PROJECTIONS, Replaced, TaughtObjective, Teacher, teacher
from bertzoo.runs.batches import example
from bertzoo.runs.pretrain_config import Pretrain
from bertzoo.runs.transfer_config import Auxiliary, Progressive, Recipe, Transfer
from bertzoo.train import sharding
from bertzoo.train.phase import Phase
from bertzoo.train.state import boxed_shapes, shapes_of
from bertzoo.train.step import gradients

ENCODER = "encoder/layers_"
BEFORE = ("embedding/", "encoder/projection/")  # what comes before the layers


@functools.lru_cache(maxsize=4)
def of(recipe: Recipe) -> tuple[Phase, ...]:
    """The phases of a recipe's stages; raises ConfigError where its models cannot be built."""
    if isinstance(recipe, Pretrain):
        objective = recipe.objective.build(recipe.model, recipe.compute)
        return (Phase(objective=objective, optimizer=recipe.optimizer),) * len(recipe.stages)
    taught = _Taught(recipe)
    made = [taught.lesson(index, lesson) for index, lesson in enumerate(recipe.lessons)]
    after = taught.distillation()
    return (*made, *[after] * len(recipe.distillation))


def learnt(recipe: Recipe, index: int) -> Callable[[Any, Any, Any], Any]:
    """The function (params, frozen, batch) -> gradients of a stage."""
    phase = of(recipe)[index]

    def function(params: Any, frozen: Any, batch: Any) -> Any:
        return gradients(phase.trained, params, frozen, batch, phase.objective.weights(batch), jax.random.key(0))[0]

    return function


def model_flops(recipe: Recipe, index: int) -> int:
    """Model operations of one row of a stage, those of layers computed twice for want of memory once.

    The backward pass has two products for every one of the forward, as far as it goes: a teacher and what lies before
    the first parameter that learns have none.
    """
    recipe = dataclasses.replace(recipe, compute=dataclasses.replace(recipe.compute, remat=False))
    objective, batch = of(recipe)[index].objective, example(recipe, index)
    params = nn.meta.unbox(boxed_shapes(objective))
    if isinstance(recipe, Transfer):
        return matmul_flops(learnt(recipe, index), params, nn.meta.unbox(teacher_of(recipe).shapes()), batch)
    return 3 * matmul_flops(lambda params, batch: objective(params, None, batch, None), params, batch)


@functools.lru_cache(maxsize=4)
def teacher_of(recipe: Transfer) -> Teacher:
    """The teacher's modules; raises ConfigError where nothing of it can say what a masked token was, but must."""
    knowledge, generator = recipe.knowledge, None
    writes = knowledge.ground_truth < 1 and bool(recipe.distillation or isinstance(recipe.transfer, Auxiliary))
    if isinstance(recipe.teacher_objective, Replaced) and writes:
        generator = generator_config(recipe.teacher, recipe.teacher_objective.generator_width)
        if generator is None:
            raise ConfigError(
                f"a teacher of kind {recipe.teacher.kind} under replaced token detection has no masked language model "
                "that stands on its own, so that it has no distribution to distil: give knowledge.ground_truth = 1.0"
            )
    compute = dataclasses.replace(recipe.compute, dtype=knowledge.dtype, remat=False)
    return teacher(recipe.teacher, generator, writes, compute)


def teacher_shapes(recipe: Transfer, mesh: jax.sharding.Mesh | None = None) -> Any:
    """Shapes and formats of the teacher's parameters, and on a mesh places; raises ConfigError as `sharding.place`."""
    boxed, dtype = teacher_of(recipe).shapes(), jnp.dtype(recipe.knowledge.dtype)
    if mesh is None:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), nn.meta.unbox(boxed))
    # Under a name that an error has: the student's parameters may be called alike.
    places = sharding.shardings({"teacher": boxed}, mesh, recipe.mesh.fallbacks)["teacher"]
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=place), nn.meta.unbox(boxed), places
    )


@functools.lru_cache(maxsize=4)
def copied_names(recipe: Transfer) -> tuple[str, ...]:
    """The student's parameters outside its layers that have a namesake of one kind and shape in the teacher."""
    if not recipe.knowledge.copy:
        return ()
    own = dataclasses.replace(recipe.compute, vocab_multiple=1)
    student = recipe.objective.build(recipe.model, own)
    theirs = recipe.teacher_objective.build(recipe.teacher, own)
    mine, found = shapes_of(student), shapes_of(theirs)
    return tuple(
        name
        for name, leaf in mine.items()
        if not name.startswith(ENCODER)
        and name in found
        and found[name].shape == leaf.shape
        and _owner(student.model, name) is _owner(theirs.model, name)
        and (not name.startswith("sentence_head/") or recipe.objective.sentence == recipe.teacher_objective.sentence)
    )


def _owner(module: object, name: str) -> type:
    """The class of the module that has a parameter: a norm and what stands in its place have the same names."""
    for part in name.split("/")[:-1]:
        module = getattr(module, part)
    return type(module)


class _Taught:
    """Makes the phases of one transfer."""

    def __init__(self, recipe: Transfer):
        self._recipe = recipe
        self._student = recipe.objective.build(recipe.model, recipe.compute)
        self._teacher = teacher_of(recipe)
        self._names = names(self._student.model.encoder.layers)  # type: ignore[attr-defined]
        self._projection = None
        if recipe.lessons and recipe.model.hidden_size != recipe.teacher.hidden_size:
            self._projection = Dense(
                features=(recipe.teacher.hidden_size,),
                axes=("model", "teacher"),
                kernel_init=nn.initializers.truncated_normal(recipe.model.initializer_range),
                dtype=recipe.compute.jax_dtype,
            )

    def _objective(self, lesson: tuple[int, ...], masked: bool) -> TaughtObjective:
        recipe = self._recipe
        return TaughtObjective(
            student=self._student,
            teacher=self._teacher,
            knowledge=recipe.knowledge,
            pairs=tuple((layer, recipe.layer_map[layer]) for layer in lesson),
            masked=masked,
            projection=self._projection,
            projected=tuple(range(1, recipe.model.layers + 1)) if self._projection else (),
            width=recipe.model.hidden_size,
        )

    def lesson(self, index: int, lesson: tuple[int, ...]) -> Phase:
        recipe = self._recipe
        auxiliary, layers = isinstance(recipe.transfer, Auxiliary), recipe.model.layers
        below = recipe.transfer.lower_rate if isinstance(recipe.transfer, Progressive) else 1.0
        kept = self._kept
        active = self._names[lesson[-1] - 1] if len(lesson) == 1 else ""
        said = f"layer {lesson[0]} of {layers}" if len(lesson) == 1 else f"all {layers} layers"

        def rate(name: str) -> float:
            if auxiliary:
                return 1.0
            head, _, rest = name.partition("/")
            if head in ("encoder", PROJECTIONS) and rest.startswith("layers_"):
                own = rest.split("/")[0]
                if head == PROJECTIONS:  # one of each layer, also where layers are the same one
                    return float(int(own.removeprefix("layers_")) + 1 in lesson)
                layer = self._names.index(own) + 1
                if not active:
                    return 1.0
                return 1.0 if layer == lesson[0] else below * (layer < lesson[0])
            # What comes before the layers and is the teacher's stays so; what is not is taught with the first.
            if name in kept or not name.startswith(BEFORE):
                return 0.0
            return 1.0 if index == 0 or not active else below

        return Phase(
            objective=self._objective(lesson, auxiliary),
            optimizer=recipe.optimizer_of(index),
            rates=rate,
            name=f"transfer, {said}",
        )

    @functools.cached_property
    def _kept(self) -> frozenset[str]:
        """What stays as it is before the layers: all that is copied and, where nothing else is not, the norm too, which
        of a student without statistics has nothing to be copied from (γ = 1, β = 0, as in the authors' code).
        """
        copied = frozenset(copied_names(self._recipe))
        before = {name for name in shapes_of(self._student) if name.startswith(BEFORE)}
        rest = {name for name in before - copied if not name.startswith("embedding/norm/")}
        return frozenset(before if not rest else before & copied)

    def distillation(self) -> Phase:
        recipe, objective = self._recipe, self._objective((), True)
        rates = _without_projections if objective.projection else None
        name = "distillation" if recipe.knowledge.ground_truth < 1 else "pretraining"
        return Phase(objective=objective, optimizer=recipe.optimizer, rates=rates, name=name)


def _without_projections(name: str) -> float:
    return float(not name.startswith(f"{PROJECTIONS}/"))
