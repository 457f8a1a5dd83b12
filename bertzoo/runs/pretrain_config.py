"""The config of a pretraining run, and checks that span several of the config's tables."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from bertzoo.core.errors import ConfigError
from bertzoo.data.pack import ElectraPacking
from bertzoo.data.settings import Data
from bertzoo.models import Compute, Model
from bertzoo.objectives import Masked, Replaced
from bertzoo.train import optim, stages
from bertzoo.train.loop import RunSettings
from bertzoo.train.optim import Optimizer
from bertzoo.train.sharding import Mesh
from bertzoo.train.stages import Stage


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """The config of a pretraining run: a TOML file with `seed` and one table for each other field."""

    kind: Literal["pretrain"] = "pretrain"  # the kind of config
    seed: int = 0  # source of initial parameters, masks, dropout and the order of rows
    model: Model  # the architecture and its sizes
    objective: Masked | Replaced = field(default_factory=Masked)  # the loss
    data: Data = field(default_factory=Data)  # the text and how it becomes rows
    optimizer: Optimizer  # the update rule and its learning rate
    stages: tuple[Stage, ...]  # consecutive phases of training; at least one
    compute: Compute = field(default_factory=Compute)  # number format and memory
    mesh: Mesh = field(default_factory=Mesh)  # how devices share the work
    run: RunSettings = field(default_factory=RunSettings)  # when to log, evaluate and save
    # Tables of a model directory's model.toml (runs/any_model.py). As a config file, it provides only its [model].
    EXTRACTS: ClassVar[frozenset[str]] = frozenset({"model", "head", "source"})

    def __post_init__(self):
        check_tables(self, [self.optimizer] * len(self.stages))

    def where(self, index: int) -> str:
        """Return the config key of training stage `index`, such as stages.0."""
        return f"stages.{index}"


class Checked(Protocol):
    """The attributes that the configs of pretraining, transfer and pruning share."""

    @property
    def seed(self) -> int: ...
    @property
    def model(self) -> Model: ...
    @property
    def objective(self) -> Masked | Replaced: ...
    @property
    def data(self) -> Data: ...
    @property
    def optimizer(self) -> Optimizer: ...
    @property
    def stages(self) -> tuple[Stage, ...]: ...
    def where(self, index: int) -> str: ...


def check_tables(recipe: Checked, optimizers: Sequence[Optimizer]) -> None:
    """Raise ConfigError if tables of a run's config contradict one another; optimizers: one for each training stage."""
    if not 0 <= recipe.seed < 2**63:
        raise ConfigError(f"seed = {recipe.seed} is not between 0 and 2^63 - 1. Use a number in that range.")
    stages.validate(recipe.stages, recipe.where)
    data, objective, model = recipe.data, recipe.objective, recipe.model
    try:
        shortest = data.packing.shortest(objective.sentence)
    except ConfigError as error:
        raise ConfigError(f"data.packing does not fit objective.sentence: {error}") from error
    for index, stage in enumerate(recipe.stages):
        group, where = stages.schedule_group(recipe.stages, index), recipe.where(index)
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
    if objective.sentence != "none" and model.token_types < 2:
        raise ConfigError(
            f"objective.sentence = {objective.sentence} needs two token types, but model.token_types = "
            f"{model.token_types}. Set model.token_types = 2."
        )
    if isinstance(data.packing, ElectraPacking) and model.token_types == 1:
        raise ConfigError(
            "data.packing.kind = electra makes rows of two segments, but model.token_types = 1. Set model.token_types "
            "= 2."
        )
    if not data.tokenizer.path and data.tokenizer.vocab_size > model.vocab_size:
        raise ConfigError(
            f"data.tokenizer.vocab_size = {data.tokenizer.vocab_size} is more than model.vocab_size = "
            f"{model.vocab_size}. Lower data.tokenizer.vocab_size or raise model.vocab_size."
        )
