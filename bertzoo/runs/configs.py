"""The configs of pretraining and of knowledge transfer (MobileBERT, Sun et al. 2020, §3.5 and §3.6).

Both have the attributes that a run reads. A transfer trains the stages of the layer transfer, then the stages of the
distillation.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError
from bertzoo.data.settings import Data
from bertzoo.models import Compute, Model
from bertzoo.objectives import Knowledge, Masked, TextLoss
from bertzoo.train import experiment, optim
from bertzoo.train.experiment import Stage
from bertzoo.train.loop import RunSettings
from bertzoo.train.optim import Optimizer, Schedule
from bertzoo.train.sharding import Mesh


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Keys and attributes that the configs of pretraining, transfer and pruning share."""

    kind: str  # the kind of config
    seed: int = 0  # source of initial parameters, masks, dropout and the order of rows
    model: Model  # the architecture and its sizes
    objective: TextLoss = field(default_factory=Masked)  # the loss
    data: Data = field(default_factory=Data)  # the text and how it becomes sequences
    optimizer: Optimizer  # the update rule and its learning rate
    compute: Compute = field(default_factory=Compute)  # number format and memory
    mesh: Mesh = field(default_factory=Mesh)  # how devices share the work
    run: RunSettings = field(default_factory=RunSettings)  # when to log, evaluate and save
    if TYPE_CHECKING:  # a field of one config and a property of others

        @property
        def stages(self) -> tuple[Stage, ...]: ...

    def where(self, index: int) -> str:
        """Return the config key of training stage `index`, such as stages.0."""
        return f"stages.{index}"


@dataclass(frozen=True, kw_only=True)
class Pretrain(TrainingConfig):
    """The config of a pretraining run: a TOML file with `seed` and one table for each other field."""

    kind: Literal["pretrain"] = "pretrain"
    stages: tuple[Stage, ...]  # consecutive phases of training; at least one
    # Tables of a model directory's model.toml (runs/load_model.py). As a config file, it provides only its [model].
    EXTRACTS: ClassVar[frozenset[str]] = frozenset({"model", "head", "source"})

    def __post_init__(self):
        check_tables(self, [self.optimizer] * len(self.stages))


def check_tables(recipe: TrainingConfig, optimizers: Sequence[Optimizer]) -> None:
    """Raise ConfigError if tables of a run's config contradict one another; optimizers: one for each training stage."""
    check_range(recipe, "seed", least=0, below=2**63, advice="Use 0, for example.")
    experiment.validate(recipe.stages, recipe.where)
    if recipe.run.profile_start > (steps := experiment.total_steps(recipe.stages)):
        raise ConfigError(
            f"run.profile_start = {recipe.run.profile_start} is after the last of the run's {steps} steps. Lower it."
        )
    data, objective, model = recipe.data, recipe.objective, recipe.model
    try:
        shortest = data.packing.shortest(objective.sentence)
    except ConfigError as error:
        raise ConfigError(f"data.packing does not fit objective.sentence: {error}") from error
    for index, stage in enumerate(recipe.stages):
        group, where = experiment.schedule_group(recipe.stages, index), recipe.where(index)
        try:
            optim.schedule_of(optimizers[index], group.steps, group.learning_rate)
        except ConfigError as error:
            table = "optimizer" if optimizers[index] is recipe.optimizer else where
            raise ConfigError(f"{table}.schedule does not fit {where}: {error}") from error
        if stage.max_length < shortest:
            raise ConfigError(
                f"{where}.max_length = {stage.max_length} leaves no room for text: data.packing.kind = "
                f"{data.packing.kind} with objective.sentence = {objective.sentence} needs at least {shortest} "
                "tokens. Raise max_length."
            )
        if stage.max_length > model.max_positions:
            raise ConfigError(
                f"{where}.max_length = {stage.max_length} is more than model.max_positions = {model.max_positions}. "
                "Lower max_length, or raise model.max_positions."
            )
    if objective.sentence != "none" and not model.layers:
        raise ConfigError(
            f"objective.sentence = {objective.sentence} needs layers, which compare two segments, but model.kind = "
            f'{model.kind} has 0. Set objective.sentence = "none".'
        )
    if not data.tokenizer.path and data.tokenizer.vocab_size > model.vocab_size:
        raise ConfigError(
            f"data.tokenizer.vocab_size = {data.tokenizer.vocab_size} is more than model.vocab_size = "
            f"{model.vocab_size}. Lower data.tokenizer.vocab_size or raise model.vocab_size."
        )


_WARMUP = Schedule(kind="polynomial", power=0.5, end_factor=0.9, warmup="least", warmup_share=0.1)


@dataclass(frozen=True, kw_only=True)
class StrategyStages(Stage):
    """Fields that layer-transfer strategies share: those of each of their training stages, and its schedule."""

    learning_rate: float = field()  # peak of the stage's schedule
    carry: Literal["moments", "all", "params"] = field(default="params", init=False)  # a fresh optimiser
    schedule: Schedule = _WARMUP  # learning rate of each stage by step

    def stage(self) -> Stage:
        """Return a training stage without the other fields."""
        return Stage(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Stage)})

    def layer_groups(self, layers: int) -> list[tuple[int, ...]]:
        """Return the student's layers (from 1) that each training stage compares with the teacher's.

        By default, a single stage compares all layers. layers: number of the student's layers.
        """
        return [tuple(range(1, layers + 1))]


@dataclass(frozen=True, kw_only=True)
class Progressive(StrategyStages):
    """Progressive knowledge transfer (PKT, §3.6): one training stage of `steps` steps per student layer, in order."""

    kind: Literal["progressive"] = "progressive"
    lower_rate: float = 0.1  # factor of the learning rate for the layers below the current one; 0 freezes them

    def __post_init__(self):
        super().__post_init__()
        check_range(self, "lower_rate", least=0, most=1, advice="Use a factor in that range; 0 freezes layers.")

    def layer_groups(self, layers: int) -> list[tuple[int, ...]]:
        """Return [(1,), (2,), …]: each training stage compares one layer of the student with the teacher's."""
        return [(layer,) for layer in range(1, layers + 1)]


@dataclass(frozen=True, kw_only=True)
class Joint(StrategyStages):
    """Joint knowledge transfer (JKT, §3.6): one training stage for all layers together."""

    kind: Literal["joint"] = "joint"


@dataclass(frozen=True, kw_only=True)
class Auxiliary(StrategyStages):
    """Auxiliary knowledge transfer (AKT, §3.6): one stage whose loss sums the transfer of all layers and distillation.

    All parameters train, none are copied from the teacher by default, and no stage follows. The default schedule is
    that of the distillation in MobileBERT's code, with 10 k of 500 k steps of warm-up.
    """

    kind: Literal["auxiliary"] = "auxiliary"
    schedule: Schedule = field(default_factory=lambda: Schedule(warmup_share=0.02, end_factor=1e-4))


@dataclass(frozen=True, kw_only=True)
class NoLayerTransfer:
    """No transfer of layers: the student only copies parameters and learns by distillation."""

    kind: Literal["nothing"] = "nothing"


Strategy = Progressive | Joint | Auxiliary | NoLayerTransfer


@dataclass(frozen=True, kw_only=True)
class Transfer(TrainingConfig):
    """The config of a student that learns from a teacher: `seed`, and a table for every other field.

    `distillation` is a list of tables. Raises ConfigError if values do not fit together.
    """

    kind: Literal["transfer"] = "transfer"
    teacher: Model  # the teacher's architecture and sizes
    teacher_objective: TextLoss = field(default_factory=Masked)  # the loss that the teacher was trained with
    model: Model  # the student's architecture and sizes
    objective: Masked = field(default_factory=Masked)  # the student's loss on the text
    knowledge: Knowledge = field(default_factory=Knowledge)  # losses that compare student and teacher, with weights
    transfer: Strategy  # the strategy that transfers layers
    optimizer: Optimizer  # the update rule; its schedule applies to the distillation
    distillation: tuple[Stage, ...] = ()  # stages after the transfer; none under transfer.kind = "auxiliary"
    EXTRACTS: ClassVar[frozenset[str]] = Pretrain.EXTRACTS

    def __post_init__(self):
        auxiliary = isinstance(self.transfer, Auxiliary)
        if self.knowledge.copy is None:  # resolved, so that a run's config.toml has the value
            object.__setattr__(self, "knowledge", dataclasses.replace(self.knowledge, copy=not auxiliary))
        if auxiliary and self.distillation:
            raise ConfigError(
                'transfer.kind = "auxiliary" has the distillation in its loss, but a [[distillation]] of '
                f"{self.distillation[0].steps} steps would follow. Use distillation = [] and set transfer.steps to all "
                'steps of the run, or use transfer.kind = "joint".'
            )
        if not self.stages:
            raise ConfigError(
                'transfer.kind = "nothing" and an empty distillation leave no stage. Add a [[distillation]] with '
                "steps, batch_size and max_length."
            )
        if self.distillation and self.distillation[0].carry == "all":
            raise ConfigError(
                'distillation.0.carry = "all" does not apply: the first distillation stage starts with a fresh '
                "optimiser and its own schedule. Remove this key."
            )
        check_tables(self, [self.optimizer_of(index) for index in range(len(self.stages))])
        longest = max(stage.max_length for stage in self.stages)
        if longest > self.teacher.max_positions:
            raise ConfigError(
                f"{longest} tokens a row exceed teacher.max_positions = {self.teacher.max_positions}. Lower max_length."
            )
        if self.teacher.vocab_size != self.model.vocab_size:
            raise ConfigError(
                f"teacher.vocab_size = {self.teacher.vocab_size} and model.vocab_size = {self.model.vocab_size} "
                "differ, but a student reads its teacher's vocabulary. Make them equal."
            )
        self._check_layers()
        if self.transfer.kind == "progressive" and self.model.kind == "albert":
            raise ConfigError(
                'transfer.kind = "progressive" trains one layer after another, but model.kind = "albert" has one set '
                'of parameters for all layers. Use "joint" or "auxiliary".'
            )
        if self.transfer.kind != "nothing" and not self.knowledge.weights:
            raise ConfigError(
                f'transfer.kind = "{self.transfer.kind}" compares layers, but all weights of [knowledge] are 0. Set '
                'a weight above 0, or transfer.kind = "nothing".'
            )
        if self.transfer.kind == "nothing" and self.knowledge.ground_truth == 1 and not self.knowledge.copy:
            raise ConfigError(
                'transfer.kind = "nothing", knowledge.ground_truth = 1.0 and knowledge.copy = false leave the '
                "teacher unused. Train [model] with bertzoo pretrain instead."
            )

    def _check_layers(self) -> None:
        layers, student, teacher = list(self.knowledge.layers), self.model.layers, self.teacher.layers
        if self.transfer.kind == "nothing":
            if layers:
                raise ConfigError(
                    f'knowledge.layers = {layers} does not apply to transfer.kind = "nothing". Remove knowledge.layers.'
                )
            return
        if not layers and student != teacher:
            raise ConfigError(
                f"model.layers = {student} and teacher.layers = {teacher} differ. Set knowledge.layers to a list of "
                f"{student} layers of the teacher, one for each layer of the student."
            )
        if layers and len(layers) != student:
            raise ConfigError(
                f"knowledge.layers has {len(layers)} entries, but model.layers = {student}. Give {student} entries."
            )
        if wrong := [layer for layer in layers if not 1 <= layer <= teacher]:
            raise ConfigError(
                f"knowledge.layers has layer {wrong[0]}, but the teacher's layers are 1 to {teacher}. Use one of these."
            )
        if layers != sorted(layers):
            raise ConfigError(f"knowledge.layers = {layers} is not in ascending order. Sort it.")

    @property
    def layer_map(self) -> dict[int, int]:
        """The teacher's layer for each layer of the student, both counted from 1."""
        return dict(enumerate(self.knowledge.layers or range(1, self.model.layers + 1), start=1))

    @property
    def layer_groups(self) -> list[tuple[int, ...]]:
        """The student's layers (from 1) that each training stage of the strategy compares with the teacher's."""
        return [] if isinstance(self.transfer, NoLayerTransfer) else self.transfer.layer_groups(self.model.layers)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All training stages: the strategy's, then the distillation's, which start with a fresh optimiser."""
        strategy: list[Stage] = []
        if not isinstance(self.transfer, NoLayerTransfer):
            strategy = [self.transfer.stage()] * len(self.layer_groups)
        first = [dataclasses.replace(stage, carry="params") for stage in self.distillation[:1]]
        return (*strategy, *first, *self.distillation[1:])

    def where(self, index: int) -> str:
        """Return the config key of training stage `index`.

        The key is "transfer" for all stages of the strategy, and "distillation.i" for stage i of the distillation.
        """
        after = index - len(self.layer_groups)
        return "transfer" if after < 0 else f"distillation.{after}"

    def optimizer_of(self, index: int) -> Optimizer:
        """Return the optimiser of training stage `index`, with the schedule of the strategy or of the distillation."""
        if isinstance(self.transfer, NoLayerTransfer) or index >= len(self.layer_groups):
            return self.optimizer
        return dataclasses.replace(self.optimizer, schedule=self.transfer.schedule)


Recipe = Pretrain | Transfer
