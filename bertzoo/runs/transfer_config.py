"""The config of a transfer from teacher to student (MobileBERT, Sun et al. 2020, §3.3 to §3.5), and its stages.

`Transfer` has the tables of `Pretrain` and, wherever a recipe is read, its attributes: `stages` are those of the
strategy and then those of the distillation.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from bertzoo.core.errors import ConfigError
from bertzoo.data.settings import Data
from bertzoo.models import Compute, Model
from bertzoo.objectives import Knowledge, Masked, Replaced
from bertzoo.runs.pretrain_config import Pretrain, check
from bertzoo.train.loop import Run
from bertzoo.train.optim import Optimizer
from bertzoo.train.schedule import Schedule
from bertzoo.train.sharding import Mesh
from bertzoo.train.stages import Stage


def _warmed() -> Schedule:
    return Schedule(kind="polynomial", power=0.5, end_factor=0.9, warmup="least", warmup_share=0.1)


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """What the stages of every strategy have: the shape of their batches, and a rate and a schedule of their own."""

    steps: int
    batch_size: int
    max_length: int
    max_predictions: int = 20
    learning_rate: float
    accumulate: int = 1
    schedule: Schedule = field(default_factory=_warmed)

    def __post_init__(self):
        self.stage()  # raises ConfigError where there can be no such stage

    def stage(self) -> Stage:
        """One stage of so many steps, with moments of its own."""
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(Stage) if hasattr(self, f.name)}
        return Stage(**given, carry="params")


@dataclass(frozen=True, kw_only=True)
class Progressive(Lessons):
    """One stage of `steps` for each layer of the student, from the first (PKT).

    lower_rate: of the layers below the one at work, as a factor of the rate; 0 freezes them.
    """

    kind: Literal["progressive"] = "progressive"
    lower_rate: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.lower_rate <= 1:
            raise ConfigError(f"lower_rate = {self.lower_rate} is not a factor between 0 and 1")

    def lessons(self, layers: int) -> list[tuple[int, ...]]:
        """For each stage the student's layers, counted from 1, that are compared with their teachers."""
        return [(layer,) for layer in range(1, layers + 1)]


@dataclass(frozen=True, kw_only=True)
class Joint(Lessons):
    """One stage for all layers together (JKT)."""

    kind: Literal["joint"] = "joint"

    def lessons(self, layers: int) -> list[tuple[int, ...]]:
        """As Progressive's."""
        return [tuple(range(1, layers + 1))]


@dataclass(frozen=True, kw_only=True)
class Auxiliary(Lessons):
    """One stage for all layers and the distillation in one loss, in which everything is trained (AKT)."""

    kind: Literal["auxiliary"] = "auxiliary"

    def lessons(self, layers: int) -> list[tuple[int, ...]]:
        """As Progressive's."""
        return [tuple(range(1, layers + 1))]


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """No transfer: what is copied from the teacher, and the distillation."""

    kind: Literal["nothing"] = "nothing"

    def lessons(self, layers: int) -> list[tuple[int, ...]]:
        """As Progressive's."""
        return []


Strategy = Progressive | Joint | Auxiliary | Nothing


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A student taught by a teacher; a TOML file holds one table for each field.

    teacher: the teacher's model, and `teacher_objective` what it was trained for; model: the student's; transfer: the
    strategy; distillation: the stages after it, under `optimizer`'s schedule.
    """

    seed: int = 0
    teacher: Model
    teacher_objective: Masked | Replaced = field(default_factory=Masked)
    model: Model
    objective: Masked = field(default_factory=Masked)
    knowledge: Knowledge = field(default_factory=Knowledge)
    transfer: Strategy
    data: Data = field(default_factory=Data)
    optimizer: Optimizer
    distillation: tuple[Stage, ...]
    compute: Compute = field(default_factory=Compute)
    mesh: Mesh = field(default_factory=Mesh)
    run: Run = field(default_factory=Run)

    def __post_init__(self):
        self._check_stages()
        check(self, [self.optimizer_of(index) for index in range(len(self.stages))])
        longest = max(stage.max_length for stage in self.stages)
        if longest > self.teacher.max_positions:
            raise ConfigError(
                f"rows of {longest} tokens are longer than teacher.max_positions = {self.teacher.max_positions}"
            )
        if self.teacher.vocab_size != self.model.vocab_size:
            raise ConfigError(
                f"teacher.vocab_size = {self.teacher.vocab_size} and model.vocab_size = {self.model.vocab_size}: a "
                "teacher and its student must have one vocabulary"
            )
        self._check_layers()
        if self.transfer.kind == "progressive" and self.model.kind == "albert":
            raise ConfigError(
                'transfer.kind = "progressive" teaches one layer after another, but model.kind = "albert" has one set '
                'of parameters for all: give "joint" or "auxiliary"'
            )
        if self.transfer.kind != "nothing" and not self.knowledge.weights:
            raise ConfigError(
                f'transfer.kind = "{self.transfer.kind}" compares layers, but all weights of [knowledge] are 0: give '
                'one, or transfer.kind = "nothing"'
            )
        if self.transfer.kind == "nothing" and self.knowledge.ground_truth == 1 and not self.knowledge.copy:
            raise ConfigError(
                'transfer.kind = "nothing", knowledge.ground_truth = 1.0 and knowledge.copy = false leave the teacher '
                "nothing to give: pretrain [model] without one, with bertzoo pretrain"
            )

    def _check_stages(self) -> None:
        if not self.stages:
            raise ConfigError(
                'transfer.kind = "nothing" and an empty distillation leave nothing to do; give at least one '
                "[[distillation]] with steps, batch_size and max_length"
            )
        if self.distillation and self.distillation[0].carry == "all":
            raise ConfigError(
                'distillation.0.carry="all" has no stage before it to carry from, as distillation begins with fresh '
                "moments and a schedule of its own; remove it"
            )

    def _check_layers(self) -> None:
        given, mine, theirs = self.knowledge.layers, self.model.layers, self.teacher.layers
        if self.transfer.kind == "nothing" and given:
            raise ConfigError('knowledge.layers says nothing for transfer.kind = "nothing"; remove it')
        if self.transfer.kind == "nothing":
            return
        if not given and mine != theirs:
            raise ConfigError(
                f"model.layers = {mine} and teacher.layers = {theirs} differ: say with knowledge.layers which of the "
                f"teacher's {theirs} layers each of the student's {mine} learns from"
            )
        if given and len(given) != mine:
            raise ConfigError(f"knowledge.layers names {len(given)} layers of the teacher for model.layers = {mine}")
        if wrong := [layer for layer in given if not 1 <= layer <= theirs]:
            raise ConfigError(f"knowledge.layers names layer {wrong[0]}, but the teacher has the layers 1 to {theirs}")
        if list(given) != sorted(given):
            raise ConfigError(f"knowledge.layers = {list(given)} goes back: a later layer learns from an earlier one's")

    @property
    def layer_map(self) -> dict[int, int]:
        """For each layer of the student the teacher's that it learns from, both counted from 1."""
        given = self.knowledge.layers or range(1, self.model.layers + 1)
        return dict(enumerate(given, start=1))

    @property
    def lessons(self) -> list[tuple[int, ...]]:
        """For each stage of the strategy the student's layers that are compared, counted from 1."""
        return self.transfer.lessons(self.model.layers)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages of the run: the strategy's, then the distillation's, which begins with fresh moments."""
        made = [] if isinstance(self.transfer, Nothing) else [self.transfer.stage()] * len(self.lessons)
        first = [dataclasses.replace(stage, carry="params") for stage in self.distillation[:1]]
        return (*made, *first, *self.distillation[1:])

    def where(self, index: int) -> str:
        """The place of a stage in the config; all stages of a strategy have one."""
        after = index - len(self.lessons)
        return "transfer" if after < 0 else f"distillation.{after}"

    def optimizer_of(self, index: int) -> Optimizer:
        """The optimiser of a stage, with its schedule."""
        if isinstance(self.transfer, Nothing) or index >= len(self.lessons):
            return self.optimizer
        return dataclasses.replace(self.optimizer, schedule=self.transfer.schedule)


Recipe = Pretrain | Transfer
