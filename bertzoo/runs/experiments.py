"""Build a run from its config: the objective, optimiser, learning rates and batches of each stage, and a teacher."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.data.corpus.reader import Corpus, Split
from bertzoo.data.mask import LinearShare
from bertzoo.data.pack import RowPlan, plan_rows
from bertzoo.data.pipeline import Batch, Batches, array_shapes, prefetch
from bertzoo.data.rng import fold
from bertzoo.models.partial import BELOW_LAYERS, names
from bertzoo.models.replaced import generator_config
from bertzoo.nn import Dense, TruncatedNormal
from bertzoo.objectives import PROJECTIONS, Replaced, Teacher, TransferObjective, build_teacher
from bertzoo.runs.configs import Auxiliary, Pretrain, Progressive, Recipe, Transfer
from bertzoo.train import sharding
from bertzoo.train.experiment import Experiment, StageSetup
from bertzoo.train.state import shapes_of

_LOG = logging.getLogger(__name__)
LocalRows = Callable[[int], np.ndarray]  # batch size -> indices of the rows that this process reads


def batch_shapes(recipe: Recipe, index: int, rows: int = 1) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shape and dtype of each array in a batch of `rows` rows of training stage `index`."""
    stage, sentence = recipe.stages[index], recipe.objective.sentence != "none"
    arrays = array_shapes(rows, stage.max_length, stage.max_predictions, sentence=sentence)
    return {name: jax.ShapeDtypeStruct(*array) for name, array in arrays.items()}


class RunBatches:
    """Training and held-out batches of a run with the config `recipe`.

    plans: folder that caches row plans (which tokens make up each row).
    first: number added to a stage's index in the seeds of its row order and masks. A pruning run, which is a series of
    training runs, passes the number of stages before this run, so that no two of its stages use the same seeds.
    warned: warnings that an earlier run has logged; new ones are added.
    Raises ConfigError if the tokenizer has more tokens than model.vocab_size.
    """

    def __init__(self, recipe: Recipe, corpus: Corpus, plans: Path, *, first: int = 0, warned: set[str] | None = None):
        if corpus.tokenizer.vocab_size > recipe.model.vocab_size:
            raise ConfigError(
                f"the tokenizer of {corpus.address} has {corpus.tokenizer.vocab_size} tokens, more than "
                f"model.vocab_size = {recipe.model.vocab_size}. Raise model.vocab_size."
            )
        self.recipe, self.corpus, self._plans = recipe, corpus, plans
        self._first, self._warned = first, set() if warned is None else warned
        self._by_length: dict[tuple[Split, int], RowPlan] = {}

    def plan(self, split: Split, max_length: int) -> RowPlan:
        """Return which tokens of a split make up each row of at most `max_length` tokens.

        The first call for the training split with a new `max_length` logs warnings about these rows.
        """
        if (split, max_length) not in self._by_length:
            rows = plan_rows(
                self.corpus,
                split,
                self.recipe.data.packing,
                sentence=self.recipe.objective.sentence,
                max_length=max_length,
                seed=self.recipe.seed,
                directory=self._plans,
            )
            self._by_length[split, max_length] = rows
            if split == "train" and rows.warning and rows.warning not in self._warned:
                self._warned.add(rows.warning)
                _LOG.warning(rows.warning)
        return self._by_length[split, max_length]

    def stage(self, index: int, split: Split) -> Batches:
        """Return the batches of training stage `index` from a split; every stage has its own row order and masks."""
        stage = self.recipe.stages[index]
        shares = stage.masking_shares if split == "train" else None
        return Batches(
            self.corpus,
            split,
            self.plan(split, stage.max_length),
            self.recipe.data.masking,
            max_predictions=stage.max_predictions,
            seed=fold(self.recipe.seed, self._first + index),
            share=LinearShare(shares[0], shares[1], stage.steps) if shares else None,
        )

    def check_rows(self) -> None:
        """Plan the rows of all training stages; raises CorpusError if a stage has fewer training rows than a batch."""
        for index, stage in enumerate(self.recipe.stages):
            self.stage(index, "train").check_batch_size(stage.batch_size)
            self.stage(index, "heldout")

    def train(self, index: int, row: int, local: LocalRows = np.arange) -> Iterator[Batch]:
        """Yield prefetched training batches of stage `index`, from the batch that starts at row `row` of the stage."""
        stage, batches = self.recipe.stages[index], self.stage(index, "train")
        rows, start = local(stage.batch_size), row // stage.batch_size
        return prefetch(lambda step: batches.batch(step, stage.batch_size, rows), start, stage.steps, depth=4)

    def heldout(self, index: int, rows: int, shards: int, local: LocalRows = np.arange) -> Iterator[Batch]:
        """Yield held-out batches of stage `index`: about `rows` rows in whole batches, or all rows of a smaller split.

        Repeated calls yield the same batches. shards: number of devices that a batch is split over.
        """
        stage, batches = self.recipe.stages[index], self.stage(index, "heldout")
        size = min(stage.batch_size // stage.microbatches, -(-min(rows, batches.rows) // shards) * shards)
        if rows >= batches.rows or size > batches.rows:
            return (batches.sequential(step, size, local(size)) for step in range(batches.steps(size)))
        # Stop after one pass: a second one would count some rows twice.
        return (batches.batch(step, size, local(size)) for step in range(min(-(-rows // size), batches.rows // size)))


ENCODER = "encoder/layers_"


def build_experiment(recipe: Recipe, mesh: jax.sharding.Mesh | None = None) -> Experiment:
    """Build a run of pretraining or transfer on a mesh, by default of one device, which suffices to count FLOPs.

    Raises ConfigError if a model cannot be built, or if the mesh does not divide a batch or a parameter.
    """
    mesh = mesh or sharding.one_device()
    setups = build_setups(recipe)
    last = setups[-1].objective
    plain = dataclasses.replace(recipe, compute=dataclasses.replace(recipe.compute, remat=False))
    return Experiment(
        stages=recipe.stages,
        setups=setups,
        mesh=mesh,
        batch=functools.partial(batch_shapes, recipe),
        frozen=last.teacher.shapes(stacks_teacher(mesh)) if isinstance(last, TransferObjective) else None,
        frozen_dtype=recipe.knowledge.dtype if isinstance(recipe, Transfer) else None,
        plain=functools.partial(build_experiment, plain, mesh) if recipe.compute.remat else None,
        where=recipe.where,
    )


def build_setups(recipe: Recipe) -> tuple[StageSetup, ...]:
    """Return the objective and the optimiser of each training stage; raises ConfigError if a model cannot be built."""
    if isinstance(recipe, Pretrain):
        objective = recipe.objective.build(recipe.model, recipe.compute)
        return (StageSetup(objective=objective, optimizer=recipe.optimizer),) * len(recipe.stages)
    return tuple(_transfer_setups(recipe))


def teacher_of(recipe: Transfer) -> Teacher:
    """Return the teacher's modules; raises ConfigError if the teacher lacks a masked language model to distil."""
    knowledge, generator = recipe.knowledge, None
    predicts = knowledge.ground_truth < 1 and bool(recipe.distillation or isinstance(recipe.transfer, Auxiliary))
    if isinstance(recipe.teacher_objective, Replaced) and predicts:
        generator = generator_config(recipe.teacher, recipe.teacher_objective.generator_width)
        if generator is None:
            raise ConfigError(
                f"knowledge.ground_truth = {knowledge.ground_truth} distils a masked language model, but "
                f'teacher.kind = "{recipe.teacher.kind}" has none under replaced token detection. Set '
                "knowledge.ground_truth = 1.0."
            )
    compute = dataclasses.replace(recipe.compute, dtype=knowledge.dtype, remat=False)
    return build_teacher(recipe.teacher, generator, predicts, compute)


def stacks_teacher(mesh: jax.sharding.Mesh) -> bool:
    """Return whether a teacher's layers are stacked: not on CPUs, where a step would copy each out of the stack."""
    return sharding.platform_of(mesh).name != "cpu"


def copied_names(recipe: Transfer) -> tuple[str, ...]:
    """Return the paths of the student's parameters to copy from the teacher, or () if knowledge.copy is false.

    These parameters lie outside the encoder's layers, and have the same path, shape and module class in both models.
    """
    if not recipe.knowledge.copy:
        return ()
    student = recipe.objective.build(recipe.model, recipe.compute)
    source = recipe.teacher_objective.build(recipe.teacher, recipe.compute)
    student_shapes, source_shapes = shapes_of(student), shapes_of(source)
    return tuple(
        name
        for name, leaf in student_shapes.items()
        if not name.startswith(ENCODER)
        and name in source_shapes
        and source_shapes[name].shape == leaf.shape
        and _owner(student.model, name) is _owner(source.model, name)
        and (not name.startswith("sentence_head/") or recipe.objective.sentence == recipe.teacher_objective.sentence)
    )


def _owner(module: object, name: str) -> type:
    """Return the class of the submodule with the parameter `name`, which distinguishes a LayerNorm from a NoNorm."""
    return type(functools.reduce(getattr, name.split("/")[:-1], module))


def _transfer_setups(recipe: Transfer) -> Iterator[StageSetup]:
    """Yield the setup of each stage of the layer transfer, then of each stage of the distillation."""
    student, teacher = recipe.objective.build(recipe.model, recipe.compute), teacher_of(recipe)
    count = recipe.model.layers
    modules = names(student.model.encoder.layers)  # type: ignore[attr-defined]
    groups, auxiliary = recipe.layer_groups, isinstance(recipe.transfer, Auxiliary)
    lower_rate = recipe.transfer.lower_rate if isinstance(recipe.transfer, Progressive) else 1.0
    fixed: set[str] = set()
    if groups and not auxiliary:
        # Copied parameters below the layers do not train. If all but the embedding's norm are copied, the norm does not
        # train either: a NoNorm that only the student has keeps scale 1 and bias 0, as in MobileBERT's code.
        before = {name for name in shapes_of(student) if name.startswith(BELOW_LAYERS)}
        copied = before & set(copied_names(recipe))
        fixed = before if all(name.startswith("embedding/norm/") for name in before - copied) else copied
    projection = None
    if groups and recipe.model.hidden_size != recipe.teacher.hidden_size:
        projection = Dense(
            features=(recipe.teacher.hidden_size,),
            axes=("model", "teacher"),
            kernel_init=TruncatedNormal(recipe.model.initializer_range),
            dtype=recipe.compute.jax_dtype,
        )

    def objective(layers: tuple[int, ...], masked: bool) -> TransferObjective:
        return TransferObjective(
            student=student,
            teacher=teacher,
            knowledge=recipe.knowledge,
            pairs=tuple((layer, recipe.layer_map[layer]) for layer in layers),
            masked=masked,
            projection=projection,
            width=recipe.model.hidden_size,
        )

    def rate(name: str, index: int, layers: tuple[int, ...]) -> float:
        """Return the factor of a parameter's learning rate in stage `index`, which compares `layers` (from 1)."""
        single = len(layers) == 1
        head, _, rest = name.partition("/")
        if head in ("encoder", PROJECTIONS) and rest.startswith("layers_"):
            module = rest.split("/")[0]
            if head == PROJECTIONS:  # each layer has a projection, even if the layers share parameters
                return float(int(module.removeprefix("layers_")) + 1 in layers)
            layer = modules.index(module) + 1
            return 1.0 if not single or layer == layers[0] else lower_rate * (layer < layers[0])
        # Below the layers, parameters copied from the teacher stay fixed; the others train with the first layer.
        if name in fixed or not name.startswith(BELOW_LAYERS):
            return 0.0
        return 1.0 if index == 0 or not single else lower_rate

    for index, layers in enumerate(groups):
        yield StageSetup(
            objective=objective(layers, auxiliary),
            optimizer=recipe.optimizer_of(index),
            rates=(lambda name: 1.0) if auxiliary else functools.partial(rate, index=index, layers=layers),
            name=f"transfer, layer {layers[0]} of {count}" if len(layers) == 1 else f"transfer, all {count} layers",
        )
    distillation = StageSetup(
        objective=objective((), True),
        optimizer=recipe.optimizer,
        rates=(lambda name: float(not name.startswith(f"{PROJECTIONS}/"))) if projection else None,
        name="distillation" if recipe.knowledge.ground_truth < 1 else "pretraining",
    )
    yield from [distillation] * len(recipe.distillation)
