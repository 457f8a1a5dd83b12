"""The config of a pretraining run, and the checks that need more than one of its tables."""

from dataclasses import dataclass, field

from bertzoo.data.pack import ElectraPacking
from bertzoo.data.settings import Data
from bertzoo.errors import ConfigError
from bertzoo.models import Compute, Model
from bertzoo.objectives import Masked, Replaced
from bertzoo.train import optim, stages
from bertzoo.train.loop import Run
from bertzoo.train.optim import Optimizer
from bertzoo.train.sharding import Mesh
from bertzoo.train.stages import Stage


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """A pretraining run; a TOML file holds one table for each field."""

    seed: int = 0
    model: Model
    objective: Masked | Replaced = field(default_factory=Masked)
    data: Data = field(default_factory=Data)
    optimizer: Optimizer
    stages: tuple[Stage, ...]
    compute: Compute = field(default_factory=Compute)
    mesh: Mesh = field(default_factory=Mesh)
    run: Run = field(default_factory=Run)

    def __post_init__(self):
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed = {self.seed} is not between 0 and 2^63 - 1")
        stages.validate(self.stages)
        try:
            shortest = self.data.packing.shortest(self.objective.sentence)
        except ConfigError as error:
            raise ConfigError(f"data.packing does not fit objective.sentence: {error}") from error
        for index, stage in enumerate(self.stages):
            group = stages.schedule_group(self.stages, index)
            try:
                optim.schedule_of(self.optimizer, group.steps, group.learning_rate)
            except ConfigError as error:
                raise ConfigError(f"optimizer.schedule does not fit stages.{index}: {error}") from error
            if stage.max_length < shortest:
                raise ConfigError(
                    f"stages.{index}.max_length = {stage.max_length} has no room for text beside the special tokens: "
                    f"data.packing.kind = {self.data.packing.kind} with objective.sentence = {self.objective.sentence} "
                    f"needs at least {shortest}"
                )
            if stage.max_length > self.model.max_positions:
                raise ConfigError(
                    f"stages.{index}.max_length = {stage.max_length} is longer than "
                    f"model.max_positions = {self.model.max_positions}"
                )
        if self.objective.sentence != "none" and self.model.token_types < 2:
            raise ConfigError(
                f"objective.sentence = {self.objective.sentence} needs two token types, but "
                f"model.token_types = {self.model.token_types}"
            )
        if isinstance(self.data.packing, ElectraPacking) and self.model.token_types == 1:
            raise ConfigError(
                "data.packing.kind = electra makes rows of two segments, but model.token_types = 1; give 2 or more"
            )
        trained = not self.data.tokenizer.path
        if trained and self.data.tokenizer.vocab_size > self.model.vocab_size:
            raise ConfigError(
                f"data.tokenizer.vocab_size = {self.data.tokenizer.vocab_size} is larger than "
                f"model.vocab_size = {self.model.vocab_size}"
            )
