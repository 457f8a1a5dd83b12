"""The config of a fine-tuning run."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError
from bertzoo.heads import KINDS, SentenceEmbedding
from bertzoo.heads.embedding import Pooling
from bertzoo.models import Compute, Model
from bertzoo.models.compute import Activation
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.decision import Criterion
from bertzoo.tasks.squad_tasks import SquadOptions
from bertzoo.train import experiment
from bertzoo.train.experiment import Stage
from bertzoo.train.optim import AdamW, Optimizer, Schedule
from bertzoo.train.sharding import Mesh

# Kinds of tasks in messages, beside those of own.kind.
JOINT, EMBEDDING, SEVERAL = "span with squad.joint", "embedding", "several heads"
_CLASSES = ("classification", "multi_label")
_TEXTS = (*_CLASSES, "regression")
_USUAL = (*_TEXTS, "tokens", "entities", "span")
# By option, or table of options, the kinds of tasks that it applies to. The others apply to all.
APPLIES = {
    **dict.fromkeys(("per_class", "class_weights", "calibrate", "threshold", "min_precision"), _CLASSES),
    "double_unordered": _TEXTS,
    "pooler": (*_TEXTS, SEVERAL),
    "scale": ("regression", EMBEDDING),
    "hidden": (*_USUAL, SEVERAL),
    "dropout": (*_USUAL, JOINT, SEVERAL),
    "reduction": (*_USUAL, JOINT, SEVERAL),
    "head": (*_USUAL, EMBEDDING),
    "squad": ("span", JOINT),
    "embedding": (EMBEDDING, "texts"),
}


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions:
    """The config table [embedding], for head = "embedding": the vector of a text, and its loss."""

    # the vector is the mean, a mean with growing weights, or the maximum of the tokens' states, or the first token's
    pooling: Pooling = "mean"
    projection: int = 0  # width of a linear layer after the pooling; 0: none
    normalise: bool = True  # give vectors the length 1
    sizes: tuple[int, ...] = ()  # further sizes, whose first dimensions are trained to serve alone (Matryoshka)
    # contrastive: find the second text of a pair among those of the batch. cosine, cosent: match or rank similarities
    loss: Literal["contrastive", "cosine", "cosent"] = "contrastive"
    temperature: float = 0.05  # divides cosines in contrastive and cosent
    symmetric: bool = False  # also find the first text of a pair by the second one
    # weights of the losses on a teacher's vectors, which together have the weight 1 - alpha
    l2: float = 0.0  # squared difference of the numbers
    directions: float = 1.0  # 1 - cosine
    relations: float = 0.0  # squared difference of the cosines within the batch
    sts_dir: str = ""  # folder of STS-B; its development set is scored too
    # folder for the teacher's vectors, which later runs reuse; unset: data_dir, or train's folder
    vectors_dir: str = ""

    def __post_init__(self):
        SentenceEmbedding(pooling=self.pooling, projection=self.projection, sizes=self.sizes)  # checks the values
        check_range(self, "temperature", above=0, advice="Use 0.05, for example.")
        weights = (self.l2, self.directions, self.relations)
        if min(weights) < 0 or not 0 < sum(weights) < float("inf"):
            raise ConfigError(
                f"l2, directions and relations = {', '.join(map(str, weights))} are not weights. Use numbers of at "
                "least 0, one of them above 0."
            )


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """The config of a run that fine-tunes a model on one task, with several seeds in turn.

    The option --from names the model. Batches are padded to at most `buckets` different lengths, none above max_length
    tokens.
    """

    RETIRED: ClassVar[dict[str, Any]] = {"quantise": "none", "wnli": "trained"}

    kind: Literal["finetune"] = "finetune"  # the kind of config
    task: str = ""  # a task of GLUE, squad1, squad2, or own
    data_dir: str = ""  # folder of the task's files
    own: CustomFiles = field(default_factory=CustomFiles)  # your files and columns, with task = "own"
    # the kind of head; task: the usual one; embedding: train vectors of texts (task stsb, or own.kind = "texts")
    head: str = "task"
    embedding: EmbeddingOptions = field(default_factory=EmbeddingOptions)  # the vectors, and their loss
    # a new model to train (embedding), with the tokenizer and the word vectors of the model that --from names
    model: Model | None = None
    squad: SquadOptions = field(default_factory=SquadOptions)  # how questions become sequences, and answers are chosen
    seed: int = 0  # the first seed
    seeds: int = 5  # number of seeds, each a training of its own
    epochs: int = 3  # passes over the training rows
    batch_size: int = 32  # rows of one step, over all devices and microbatches
    accumulate: int = 1  # number of microbatches that a step is split into
    max_length: int = 128  # greatest sequence length in tokens; longer texts are cut
    buckets: int = 4  # maximum number of batch lengths; a batch is padded to the shortest that holds its rows
    train_rows: int = 0  # number of labelled training examples, drawn by `seed`; 0: all
    per_class: int = 0  # largest number of training examples of a label, drawn by `seed`; 0: all
    # weight of each label's examples in the loss, in the order of the labels; of several labels, the weight of an
    # example that has the label. balanced: the rarer, the higher
    class_weights: tuple[float, ...] | Literal["balanced"] = ()
    dropout: float = 0.1  # dropout before the head's output
    encoder_dropout: float | None = None  # dropout of the layers and the attention; "none": the model's own
    # activation of a dense layer in the head; none: no such layer; model: modernbert's activation, none for other kinds
    hidden: Activation | Literal["none", "model"] = "model"
    pooler: bool = True  # use the model's pooler
    layer_decay: float = 1.0  # a layer's learning rate relative to the layer above (ELECTRA's layerwise_lr_decay)
    double_unordered: bool = False  # train on each pair of texts in both orders; only where order is irrelevant
    scale: float = 1.0  # divisor of numeric labels
    keep_head: bool = False  # keep the head of a model that was fine-tuned for the same task
    alpha: float = 1.0  # weight of the label in the training target; the teacher's prediction has the rest
    # mean of a batch's losses, or their sum as in ELECTRA's code, which clips the sum's gradient
    reduction: Literal["mean", "sum"] = "mean"
    patience: int = 0  # epochs without a better score after which a seed stops; 0: never
    select: Literal["best", "last"] = "best"  # epoch whose model is saved
    calibrate: bool = False  # divide the saved model's logits by the temperature that fits the development set best
    # thresholds of the labels' probabilities. f1: of the highest F1; precision: of the most predictions whose precision
    # is at least min_precision, with a confidence of 95 %; none: the likeliest label, or those above 0.5
    threshold: Criterion = "none"
    min_precision: float = 0.95  # least share of right predictions, for threshold = "precision"
    log_every: int = 10  # steps between two log lines
    # the update rule and its learning rate
    optimizer: Optimizer = field(
        default_factory=lambda: AdamW(learning_rate=5e-5, schedule=Schedule(warmup_share=0.1, decay_from="warmup"))
    )
    compute: Compute = field(default_factory=Compute)  # number format and memory
    mesh: Mesh = field(default_factory=Mesh)  # how devices share the work

    def __post_init__(self):
        if self.head != "task" and (self.head not in KINDS or not KINDS[self.head]().task_kind):
            # squad.joint chooses heads with answer_options
            trained = [name for name, head in KINDS.items() if head().task_kind and not head().answer_options]
            raise ConfigError(f"head = {self.head!r} is trained on no task. Use task, {', '.join(trained)}.")
        counts = ("epochs", "batch_size", "accumulate", "buckets", "log_every")
        check_range(self, *counts, least=1, advice="Use 1 or more.")
        check_range(self, "seeds", least=1, most=1000, advice="Use a number in that range.")
        check_range(self, "seed", least=0, advice="Use 0 or more.")
        check_range(self, "train_rows", "per_class", least=0, advice="Set 0 to use all examples.")
        check_range(self, "patience", least=0, advice="Set 0 to train all epochs.")
        check_range(self, "min_precision", above=0, below=1, advice="Use 0.95, for example.")
        check_range(self, "layer_decay", above=0, most=1, advice="Use 1 for no decay.")
        check_range(self, "alpha", least=0, most=1, advice="Use 1 for no teacher.")
        check_range(self, "scale", above=0, advice="Use a number above 0.")
        check_range(self, "dropout", "encoder_dropout", least=0, below=1, advice="Use a share in that range.")
        if self.patience and self.select == "last":
            raise ConfigError(f'patience = {self.patience} does not apply to select = "last". Remove it.')
        if self.per_class and self.train_rows:
            raise ConfigError("per_class and train_rows both draw training examples. Remove one of them.")
        if isinstance(self.class_weights, tuple) and not all(
            0 < weight < float("inf") for weight in self.class_weights
        ):
            raise ConfigError(f"class_weights = {list(self.class_weights)} are not all positive numbers. Change them.")
        if self.min_precision != Finetune.min_precision and self.threshold != "precision":
            raise ConfigError(
                f'min_precision = {self.min_precision} applies only to threshold = "precision". Set threshold, or '
                "remove min_precision."
            )
        if self.model is not None and (not self.embeds or self.keep_head):
            wrong = "keep_head" if self.keep_head else f"head = {self.head!r}"
            raise ConfigError(f"{wrong} does not apply to a new [model], which embeds texts. Remove one.")
        if not self.seed <= 2**63 - 1 - self.seeds:
            raise ConfigError(
                f"seed = {self.seed} with seeds = {self.seeds} reaches beyond 2^63 - 1. Use a smaller seed."
            )

    @property
    def embeds(self) -> bool:
        """Whether the run trains vectors of texts."""
        return self.head != "task" and KINDS[self.head]().task_kind == "embedding"

    def stage(self, rows: int) -> Stage:
        """Return the training as one Stage with `rows` rows per epoch; raises ConfigError if the Stage is invalid."""
        steps = -(-rows // self.batch_size)
        stage = Stage(
            steps=steps * self.epochs,
            batch_size=self.batch_size,
            max_length=self.max_length,
            max_predictions=1,
            accumulate=1 if self.embeds else self.accumulate,  # its loss divides the batch itself
        )
        experiment.validate([stage])
        return stage
