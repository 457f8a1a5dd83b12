"""Config of a pruning run (Khetan and Karnin 2020, Algorithm 1).

`Prune` has the tables and attributes of `Pretrain`; `stages` holds the stages of all iterations in order.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError
from bertzoo.models import Model
from bertzoo.objectives import Replaced
from bertzoo.pruning.costs import Cost, Flops, Target, choose, uniform
from bertzoo.pruning.objective import Gates, HardConcrete, Magnitudes
from bertzoo.pruning.structure import LETTERS, Structure, cuttable
from bertzoo.runs.configs import Pretrain, StrategyStages, TrainingConfig, check_tables
from bertzoo.train.experiment import Stage
from bertzoo.train.optim import AdamW, Optimizer, Schedule

SHARED_WITH_GENERATOR = ("h", "e")  # a generator reads its discriminator's embedding


@dataclass(frozen=True, kw_only=True)
class Multiples:
    """For each letter in `structure.LETTERS`, a number that divides the sizes after a cut, to suit the hardware."""

    h: int = 1  # the width of the layers
    e: int = 1  # the width of the embedding
    f: int = 1  # the feed-forward size
    a: int = 1  # the number of heads
    k: int = 1  # the size of a head's keys
    v: int = 1  # the size of a head's values

    def __post_init__(self):
        check_range(self, *LETTERS, least=1, advice="Use 1 to allow every size.")

    @property
    def above_one(self) -> dict[str, int]:
        """{letter: multiple} without the multiples of 1, because these allow every size."""
        return {letter: size for letter in LETTERS if (size := getattr(self, letter)) > 1}

    def check(self, structure: Structure) -> None:
        """Raise ConfigError for a multiple that allows no size of a dimension, or only the present sizes."""
        for letter, multiple in self.above_one.items():
            dimensions = [dimension for dimension in structure.dimensions.values() if dimension.letter == letter]
            spare = [dimension.size - math.lcm(multiple, dimension.groups) for dimension in dimensions]
            if min(spare, default=-1) < 0 or not any(spare):
                sizes = ", ".join(map(str, sorted({dimension.size for dimension in dimensions})))
                raise ConfigError(
                    f"cut.multiples.{letter} = {multiple} allows no smaller size of {letter}, which is "
                    f"{sizes or 'not cut'} in this model. Use a smaller number, or remove cut.multiples.{letter}."
                )


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The config table [cut]: the dimensions to cut, and the number of iterations."""

    # letters of dimensions to cut: h width, e embedding, f feed-forward, a heads, k keys, v values; empty: all
    dimensions: tuple[str, ...] = ()
    iterations: int = 1  # T: rounds of scoring and cutting; each removes a T-th of the total
    # cut the smallest elements of all dimensions, or shrink all dimensions by one factor ("BERT-all uniform")
    choice: Literal["smallest", "uniform"] = "smallest"
    multiples: Multiples = field(default_factory=Multiples)  # numbers that divide the sizes after a cut

    def __post_init__(self):
        check_range(self, "iterations", least=1, most=1000, advice="Use a number in that range.")
        if self.choice == "uniform" and self.multiples.above_one:
            raise ConfigError(
                'choice = "uniform" shrinks all layers by one factor and ignores multiples. Remove [cut.multiples], or '
                'set choice = "smallest".'
            )
        if twice := [letter for letter in self.dimensions if self.dimensions.count(letter) > 1]:
            raise ConfigError(
                f'dimensions = {list(self.dimensions)} names "{twice[0]}" twice. Remove one "{twice[0]}".'
            )
        if self.dimensions and (uncut := [x for x in self.multiples.above_one if x not in self.dimensions]):
            raise ConfigError(
                f"multiples.{uncut[0]} is set, but dimensions = {list(self.dimensions)} lacks {uncut[0]}. Add "
                f"{uncut[0]} to dimensions, or remove multiples.{uncut[0]}."
            )


@dataclass(frozen=True, kw_only=True)
class Scoring(StrategyStages):
    """The config table [weigh]: the stage that trains prune vectors α, initially all 1, with the penalty γ Σ β‖α‖.

    γ is `gamma`, and β is the relative cost of an element (`costs.betas`). The optimiser is Adam or, with penalty =
    "proximal", SGD.
    """

    # ℓ1 in the loss, ℓ0 by hard concrete gates, or ℓ1 by a soft threshold after every update (proximal)
    penalty: Literal["l1", "l0", "proximal"] = "l1"
    gamma: float  # weight γ of the penalty; above 0
    # learning rate of the scoring stage by step
    schedule: Schedule = field(default_factory=lambda: Schedule(kind="constant"))

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.gamma < float("inf"):
            effect = "everything" if self.gamma == float("inf") else "nothing"
            raise ConfigError(f"gamma = {self.gamma} would prune {effect}. Use a finite number above 0.")

    @property
    def gates(self) -> Gates:
        """The training method of the prune vectors: as hard concrete gates, or directly."""
        return HardConcrete() if self.penalty == "l0" else Magnitudes(penalised=self.penalty == "l1")

    @property
    def optimizer(self) -> Optimizer:
        """The optimiser of the prune vectors, without weight decay, so that only the penalty shrinks them."""
        return AdamW(learning_rate=self.learning_rate, weight_decay=0.0, clip_norm=0.0, schedule=self.schedule)


@dataclass(frozen=True, kw_only=True)
class Prune(TrainingConfig):
    """A pruning run; a TOML file holds `seed` and one table for each other field."""

    RETIRED: ClassVar[dict[str, Any]] = {"teaching": {"ground_truth": 1.0, "dtype": "bfloat16"}}

    kind: Literal["prune"] = "prune"
    model: Model  # the unpruned model
    target: Target  # the budget
    cut: Cut = field(default_factory=Cut)  # the dimensions to cut, and how to cut them
    weigh: Scoring  # the stage that scores the elements
    optimizer: Optimizer  # the update rule of the stages after a cut
    tuning: tuple[Stage, ...]  # stages after every cut; at least one

    def __post_init__(self):
        if not self.tuning:
            raise ConfigError("tuning is empty. Give at least one [[tuning]] with steps, batch_size and max_length.")
        if self.tuning[0].carry == "all":
            raise ConfigError('tuning.0.carry="all" has no stage before it to carry from. Remove tuning.0.carry.')
        # Latency is not checked: its table has a length of its own.
        if isinstance(self.target, Flops) and not 1 <= self.target.length <= self.model.max_positions:
            raise ConfigError(
                f"target.length = {self.target.length} is not between 1 and model.max_positions = "
                f"{self.model.max_positions}. Use a length in that range."
            )
        check_tables(self, [self.optimizer if inside else self.weigh.optimizer for inside in self._positions])
        if isinstance(self.objective, Replaced):
            for letter in self.cut.dimensions:
                if letter in SHARED_WITH_GENERATOR:
                    raise ConfigError(
                        f'{letter} cannot be cut under objective.kind = "replaced", whose generator reads the same '
                        f"embedding. Leave {letter} out of cut.dimensions."
                    )

    @property
    def _positions(self) -> list[int]:
        """For every stage of all iterations: 0 for scoring, or the number of the [[tuning]] stage, from 1."""
        return list(range(len(self.tuning) + 1)) * self.cut.iterations

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of all iterations in order; an iteration has a scoring stage, then the stages of [[tuning]]."""
        return (self.weigh.stage(), *self.tuning_stages) * self.cut.iterations

    @property
    def tuning_stages(self) -> tuple[Stage, ...]:
        """The stages of the training after a cut ([[tuning]]); the training starts with fresh optimizer moments."""
        return (dataclasses.replace(self.tuning[0], carry="params"), *self.tuning[1:])

    def where(self, index: int) -> str:
        """Return the config key of a stage: "weigh" or "tuning.N", N from 0."""
        inside = self._positions[index]
        return f"tuning.{inside - 1}" if inside else "weigh"

    @property
    def letters(self) -> tuple[str, ...]:
        """Letters of the dimensions that the run cuts; see `structure.LETTERS`."""
        if self.cut.dimensions:
            return self.cut.dimensions
        shared = SHARED_WITH_GENERATOR if isinstance(self.objective, Replaced) else ()
        return tuple(letter for letter in cuttable(self.model) if letter not in shared)

    def scoring_recipe(self, model: Model) -> Pretrain:
        """Return the recipe that trains the prune vectors of a model."""
        return self._pretrain(model, self.weigh.optimizer, (self.weigh.stage(),))

    def tuning_recipe(self, model: Model) -> Pretrain:
        """Return the recipe of the training after a cut ([[tuning]])."""
        return self._pretrain(model, self.optimizer, self.tuning_stages)

    def choose_kept(self, structure: Structure, cost: Cost, scores: dict, target: float, whole: dict[str, int]) -> dict:
        """Return {dimension: indices to keep}; raises the errors of `choose`. whole: sizes of the unpruned model."""
        if self.cut.choice == "uniform":
            return uniform(structure, scores, cost, target, whole)
        return choose(structure, scores, cost, target, self.cut.multiples.above_one)

    def _pretrain(self, model: Model, optimizer: Optimizer, stages: tuple[Stage, ...]) -> Pretrain:
        shared = {name: getattr(self, name) for name in ("seed", "objective", "data", "compute", "mesh", "run")}
        return Pretrain(model=model, optimizer=optimizer, stages=stages, **shared)
