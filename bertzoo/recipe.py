"""The config of a pretraining run, and the checks that need more than one of its tables."""

from dataclasses import dataclass, field

from bertzoo.data.settings import Data
from bertzoo.errors import ConfigError
from bertzoo.models import Compute, Model
from bertzoo.objectives import Masked
from bertzoo.train.loop import Run
from bertzoo.train.optim import Optimizer
from bertzoo.train.sharding import Mesh
from bertzoo.train.stages import Stage


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """A pretraining run; a TOML file holds one table for each field."""

    seed: int = 0
    model: Model
    objective: Masked = field(default_factory=Masked)
    data: Data = field(default_factory=Data)
    optimizer: Optimizer
    stages: tuple[Stage, ...]
    compute: Compute = field(default_factory=Compute)
    mesh: Mesh = field(default_factory=Mesh)
    run: Run = field(default_factory=Run)

    def __post_init__(self):
        if not self.stages:
            raise ConfigError("stages is empty; give at least one [[stages]] table")
        for index, stage in enumerate(self.stages):
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
        trained = not self.data.tokenizer.path
        if trained and self.data.tokenizer.vocab_size > self.model.vocab_size:
            raise ConfigError(
                f"data.tokenizer.vocab_size = {self.data.tokenizer.vocab_size} is larger than "
                f"model.vocab_size = {self.model.vocab_size}"
            )
