"""The config of a pruning run (Khetan and Karnin 2020, Algorithm 1): what is pruned, to what budget, and how.

`Prune` has the tables of `Pretrain` and, wherever a recipe is read, its attributes: `stages` are those of all
iterations, one after another.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal

from bertzoo.core.errors import ConfigError
from bertzoo.data.settings import Data
from bertzoo.models import Compute, Model
from bertzoo.objectives import Knowledge, Masked, Replaced
from bertzoo.pruning.choose import choose, uniform
from bertzoo.pruning.costs import Cost
from bertzoo.pruning.objective import Chances, Gates, Magnitudes
from bertzoo.pruning.shapes import LETTERS, cuttable
from bertzoo.pruning.structure import Structure
from bertzoo.pruning.target import Flops, Target
from bertzoo.runs.pretrain_config import Pretrain, check_tables
from bertzoo.runs.transfer_config import Nothing, StrategyStages, Transfer
from bertzoo.train.loop import RunSettings
from bertzoo.train.optim import AdamW, Optimizer
from bertzoo.train.schedule import Schedule
from bertzoo.train.sharding import Mesh
from bertzoo.train.stages import Stage

SHARED_WITH_GENERATOR = ("h", "e")  # what a generator reads, too: it has its discriminator's embedding


@dataclass(frozen=True, kw_only=True)
class Multiples:
    """What sizes are kept a multiple of, by the letters of the dimensions, as hardware likes them."""

    h: int = 1
    e: int = 1
    f: int = 1
    a: int = 1
    k: int = 1
    v: int = 1

    def __post_init__(self):
        for letter in LETTERS:
            if getattr(self, letter) < 1:
                raise ConfigError(f"{letter} = {getattr(self, letter)} is not a size to be a multiple of: 1 or more")

    @property
    def given(self) -> dict[str, int]:
        """Those that say something."""
        return {letter: size for letter in LETTERS if (size := getattr(self, letter)) > 1}

    def check(self, structure: Structure) -> None:
        """Raise ConfigError where a multiple is of nothing that is cut, is more than a size, or leaves no size less."""
        for letter, multiple in self.given.items():
            own = [dimension for dimension in structure.dimensions.values() if dimension.letter == letter]
            key = f"cut.multiples.{letter} = {multiple}"
            if not own:
                raise ConfigError(f"{key} is given, but {letter} is not cut of this model: remove it")
            steps = [math.lcm(multiple, dimension.groups) for dimension in own]
            for dimension, step in zip(own, steps, strict=True):
                if dimension.size < step:
                    groups = f", in {dimension.groups} groups" if dimension.groups > 1 else ""
                    most = f"the {dimension.size} of {dimension.name}{groups}"
                    raise ConfigError(f"{key} is more than {most} can be: give a smaller one")
            if all(dimension.size == step for dimension, step in zip(own, steps, strict=True)):
                raise ConfigError(
                    f"{key} lets nothing of {letter} go: give a smaller one, or leave {letter} out of cut.dimensions"
                )


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What is cut.

    dimensions: letters (h, e, f, a, k, v), all that the model has where there are none. iterations: T, in each of which
    a T-th of what is to go goes. choice: the smallest vectors of all dimensions together, or of each as much as one
    factor for all leaves ("BERT-all uniform").
    """

    dimensions: tuple[str, ...] = ()
    iterations: int = 1
    choice: Literal["smallest", "uniform"] = "smallest"
    multiples: Multiples = field(default_factory=Multiples)

    def __post_init__(self):
        if self.iterations < 1:
            raise ConfigError(f"iterations = {self.iterations} is less than 1")
        if self.choice == "uniform" and self.multiples.given:
            raise ConfigError('choice = "uniform" shrinks all by one factor and keeps no multiples; remove one of both')
        if twice := [letter for letter in self.dimensions if self.dimensions.count(letter) > 1]:
            raise ConfigError(f'cut.dimensions = {list(self.dimensions)} names "{twice[0]}" twice')
        if self.dimensions and (other := [x for x in self.multiples.given if x not in self.dimensions]):
            raise ConfigError(
                f"multiples.{other[0]} is given, but dimensions = {list(self.dimensions)} does not cut it: add it there"
            )


@dataclass(frozen=True, kw_only=True)
class Weigh(StrategyStages):
    """The training of the prune vectors, from 1, under γ Σ β‖α‖; moments are Adam's, under "proximal" there are none.

    penalty: ℓ1 in the loss, ℓ0 by hard concrete gates, or ℓ1 by a soft threshold after every update.
    """

    penalty: Literal["l1", "l0", "proximal"] = "l1"
    gamma: float
    schedule: Schedule = field(default_factory=lambda: Schedule(kind="constant"))

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.gamma < float("inf"):
            effect = "everything" if self.gamma == float("inf") else "nothing"
            raise ConfigError(f"gamma = {self.gamma} would prune {effect}: give a number above 0")

    @property
    def gates(self) -> Gates:
        """What is trained for every dimension."""
        return Chances() if self.penalty == "l0" else Magnitudes(penalised=self.penalty == "l1")

    @property
    def optimizer(self) -> Optimizer:
        """The bearer of the rate and its schedule; what decays prune vectors is γ alone."""
        return AdamW(learning_rate=self.learning_rate, weight_decay=0.0, clip_norm=0.0, schedule=self.schedule)


@dataclass(frozen=True, kw_only=True)
class Teaching:
    """What the fine-tuning after a cut learns from the unpruned model.

    ground_truth: the share of the true token in the labels of the masked language model, the rest being the unpruned
    model's distribution; 1 does without it. dtype: of its parameters and computations.
    """

    ground_truth: float = 1.0
    dtype: Literal["float32", "bfloat16"] = "bfloat16"

    def __post_init__(self):
        if not 0 <= self.ground_truth <= 1:
            raise ConfigError(f"ground_truth = {self.ground_truth} is not a share between 0 and 1")

    @property
    def wanted(self) -> bool:
        """Whether there is a teacher."""
        return self.ground_truth < 1


@dataclass(frozen=True, kw_only=True)
class Prune:
    """A pruning run; a TOML file holds one table for each field.

    model: the unpruned one; tuning: the stages of the fine-tuning after every cut, under `optimizer`.
    """

    seed: int = 0
    model: Model
    objective: Masked | Replaced = field(default_factory=Masked)
    data: Data = field(default_factory=Data)
    target: Target
    cut: Cut = field(default_factory=Cut)
    weigh: Weigh
    optimizer: Optimizer
    tuning: tuple[Stage, ...]
    teaching: Teaching = field(default_factory=Teaching)
    compute: Compute = field(default_factory=Compute)
    mesh: Mesh = field(default_factory=Mesh)
    run: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self):
        if not self.tuning:
            raise ConfigError("tuning is empty; give at least one [[tuning]] with steps, batch_size and max_length")
        if self.tuning[0].carry == "all":
            raise ConfigError('tuning.0.carry="all" has no stage before it to carry from; remove it')
        # Under a latency the table says the length.
        if isinstance(self.target, Flops) and not 1 <= self.target.length <= self.model.max_positions:
            raise ConfigError(
                f"target.length = {self.target.length} is not a row of the model: give 1 to model.max_positions = "
                f"{self.model.max_positions}"
            )
        check_tables(self, [self.optimizer if inside else self.weigh.optimizer for inside in self._places])
        if isinstance(self.objective, Replaced):
            for letter in self.cut.dimensions:
                if letter in SHARED_WITH_GENERATOR:
                    raise ConfigError(
                        f'{letter} cannot be cut under objective.kind = "replaced", whose generator reads the same '
                        "embedding: leave it out of cut.dimensions"
                    )
            if self.teaching.wanted:
                raise ConfigError(
                    'teaching.ground_truth distils masked language models, but objective.kind = "replaced": remove it'
                )

    @property
    def _places(self) -> list[int]:
        """For every stage of all iterations 0, or the number of the stage of the fine-tuning, from 1."""
        return list(range(len(self.tuning) + 1)) * self.cut.iterations

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Of all iterations: the weighing, then the fine-tuning."""
        return (self.weigh.stage(), *self.tuning_stages) * self.cut.iterations

    @property
    def tuning_stages(self) -> tuple[Stage, ...]:
        """Of the fine-tuning after a cut, which begins with fresh moments."""
        return (dataclasses.replace(self.tuning[0], carry="params"), *self.tuning[1:])

    def where(self, index: int) -> str:
        """The place of a stage in the config."""
        inside = self._places[index]
        return f"tuning.{inside - 1}" if inside else "weigh"

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of the dimensions that are cut, where the model has them."""
        if self.cut.dimensions:
            return self.cut.dimensions
        shared = SHARED_WITH_GENERATOR if isinstance(self.objective, Replaced) else ()
        return tuple(letter for letter in cuttable(self.model) if letter not in shared)

    def weighing(self, model: Model) -> Pretrain:
        """What the vectors of a model are trained on."""
        return self._pretrain(model, self.weigh.optimizer, (self.weigh.stage(),))

    def pretraining(self, model: Model) -> Pretrain:
        """What trains a model as the fine-tuning after a cut does, without a teacher."""
        return self._pretrain(model, self.optimizer, self.tuning_stages)

    def fine_tuning(self, model: Model) -> Pretrain | Transfer:
        """The fine-tuning after a cut."""
        if not self.teaching.wanted or isinstance(self.objective, Replaced):
            return self.pretraining(model)
        share, dtype = self.teaching.ground_truth, self.teaching.dtype
        return Transfer(
            **self._shared(model),
            teacher=self.model,
            teacher_objective=self.objective,
            objective=self.objective,
            knowledge=Knowledge(ground_truth=share, copy=False, dropout=True, dtype=dtype),
            transfer=Nothing(),
            optimizer=self.optimizer,
            distillation=self.tuning_stages,
        )

    def kept(self, structure: Structure, cost: Cost, scores: dict, target: float, whole: dict[str, int]) -> dict:
        """For every dimension of a model the elements that stay within a target of a cost, `whole` being the unpruned
        model's sizes; raises UserError as `choose` does.
        """
        if self.cut.choice == "uniform":
            return uniform(structure, scores, cost, target, whole)
        return choose(structure, scores, cost, target, self.cut.multiples.given)

    def _pretrain(self, model: Model, optimizer: Optimizer, stages: tuple[Stage, ...]) -> Pretrain:
        return Pretrain(**self._shared(model), objective=self.objective, optimizer=optimizer, stages=stages)

    def _shared(self, model: Model) -> dict:
        names = ("seed", "data", "compute", "mesh", "run")
        return {"model": model} | {name: getattr(self, name) for name in names}
