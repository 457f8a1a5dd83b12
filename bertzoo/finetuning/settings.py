"""The config of a fine-tuning run."""

from dataclasses import dataclass, field
from typing import Literal

from bertzoo.core.errors import ConfigError
from bertzoo.models import Compute
from bertzoo.models.compute import Activation
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.squad_tasks import SquadOptions
from bertzoo.train import stages
from bertzoo.train.optim import AdamW, Optimizer
from bertzoo.train.schedule import Schedule
from bertzoo.train.sharding import Mesh
from bertzoo.train.stages import Stage


def _adamw() -> AdamW:
    """BERT's: warm-up over a tenth of the steps, then a linear decay from there to 0."""
    return AdamW(learning_rate=5e-5, schedule=Schedule(warmup_share=0.1, decay_from="warmup"))


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """The keys and tables of a fine-tuning config: one task, several seeds one after another. --from names the model.

    Each batch has the shortest of at most `buckets` lengths that holds its rows; the longest is max_length.

    train_rows: number of examples that the seed draws; 0: all. dropout: before the head's output; encoder_dropout: of
    layers and attention, None for the model's own. hidden: activation of a dense layer in the head. pooler: whether to
    use the model's pooler. layer_decay: a layer's learning rate relative to the layer above (ELECTRA's
    `layerwise_lr_decay`). double_unordered: train on unordered pairs in both orders. scale: divisor of numeric labels.
    alpha: weight of the labels' loss; the rest is the teacher's. wnli: with "majority" WNLI's model is not trained and
    always predicts the most common label, as SqueezeBERT's authors do. patience: epochs without a better score after
    which a seed ends; 0: never. select: which epoch's model is saved.
    """

    task: str = ""
    data_dir: str = ""
    own: CustomFiles = field(default_factory=CustomFiles)
    squad: SquadOptions = field(default_factory=SquadOptions)
    seed: int = 0
    seeds: int = 5
    epochs: int = 3
    batch_size: int = 32
    accumulate: int = 1
    max_length: int = 128
    buckets: int = 4
    train_rows: int = 0
    dropout: float = 0.1
    encoder_dropout: float | None = None
    hidden: Activation | Literal["none"] = "none"
    pooler: bool = True
    layer_decay: float = 1.0
    double_unordered: bool = False
    scale: float = 1.0
    alpha: float = 1.0
    wnli: Literal["trained", "majority"] = "trained"
    reduction: Literal["mean", "sum"] = "mean"
    patience: int = 0
    select: Literal["best", "last"] = "best"
    log_every: int = 10
    optimizer: Optimizer = field(default_factory=_adamw)
    compute: Compute = field(default_factory=Compute)
    mesh: Mesh = field(default_factory=Mesh)

    def __post_init__(self):
        for name in ("seeds", "epochs", "batch_size", "accumulate", "buckets", "log_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)} is less than 1")
        for name in ("train_rows", "patience"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)} is negative; 0 switches it off")
        if self.seed < 0:
            raise ConfigError(f"seed = {self.seed} is negative")
        if not self.seed <= 2**63 - 1 - self.seeds:
            raise ConfigError(f"seed = {self.seed} with seeds = {self.seeds} passes 2^63 - 1")
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(f"layer_decay = {self.layer_decay} is not a factor above 0 and up to 1")
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"alpha = {self.alpha} is not a share between 0 and 1")
        if not 0 < self.scale < float("inf"):
            raise ConfigError(f"scale = {self.scale} is not a positive number")
        for name in ("dropout", "encoder_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ConfigError(f"{name} = {value} is not a share in [0, 1)")
        if self.patience and self.select == "last":
            raise ConfigError(f'patience = {self.patience} does not apply to select = "last": remove it')

    def stage(self, rows: int) -> Stage:
        """The training as one stage with `rows` rows per epoch; raises ConfigError as `Stage` does."""
        steps = -(-rows // self.batch_size)
        stage = Stage(
            steps=steps * self.epochs,
            batch_size=self.batch_size,
            max_length=self.max_length,
            max_predictions=1,
            accumulate=self.accumulate,
        )
        stages.validate([stage])
        return stage
