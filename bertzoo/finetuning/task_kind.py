"""The interface between a model and its task: head, loss, examples, batches, scores and predictions.

`score_splits` scores a model in training, a saved model and an exported file.
"""

import dataclasses
import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, cast

import jax
import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import Location
from bertzoo.data.rng import fold, fold_arrays
from bertzoo.data.tokenizers.vocabulary import UNKNOWN_ERROR, Tokenizer, check_unknown, describe_unknown
from bertzoo.finetuning.settings import APPLIES, Finetune
from bertzoo.heads import KINDS, HeadConfig
from bertzoo.runs.runner import Outputs, Runner
from bertzoo.tasks.rows import Rows, Slot
from bertzoo.tasks.squad import Question
from bertzoo.tasks.task import Example, SplitExamples
from bertzoo.train.step import Batch, Objective

if TYPE_CHECKING:
    from bertzoo.finetuning.evaluate import TaskModel

LOSSES = "losses"  # in a runner's outputs: {loss term: (sum of losses, sum of weights)} of a batch with labels
SplitOutputs = Mapping[str, tuple[Sequence[Slot], Sequence[Outputs]]]
Scores = dict[str, Any]  # loss, score, collapsed, and scores: {split: {metric: points}}
# Metrics of a model, a function that writes its predictions into a folder, and its slots and outputs by split.
Evaluation = tuple[Scores, Callable[[Path], object], SplitOutputs]


@dataclass(frozen=True, kw_only=True)
class Split(ABC):
    """Encoded examples of a split, with a score of the model's outputs for them.

    skipped: number of examples without a row, which count nowhere, by reason. finite_only: whether `predict` raises
    UserError for outputs that are not finite.
    """

    examples: Sequence[Any]
    rows: Rows
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    finite_only: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """Number of examples that count."""
        return len(self.examples) - sum(self.skipped.values())

    @property
    def summary(self) -> str:
        """The number of examples, and of those that are cut."""
        cut = int(self.rows.cut.sum())
        return f"{self.size:,} examples" + (f", {cut:,} of them cut to {self.rows.max_length} tokens" if cut else "")

    @property
    @abstractmethod
    def deciding(self) -> tuple[str, ...]:
        """Names of the metrics whose mean is the score."""

    @property
    def digest(self) -> str:
        """SHA-256 of the examples as the model reads them, in hexadecimal."""
        return self.rows.digest

    def plan(self, batch_size: int, lengths: Sequence[int], seed: int | None = None, epoch: int = 0) -> list[Slot]:
        return self.rows.plan(batch_size, lengths, seed, epoch)

    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]:
        """Return the arrays of a planned batch, by name."""
        return self.rows.batch(slot, batch_size)

    @abstractmethod
    def predict(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> Any:
        """Return predictions in the order of the examples."""

    def is_finite(self, predictions: Any) -> bool:
        return True

    @abstractmethod
    def scores(self, predictions: Any) -> dict[str, float]:
        """Return metrics by name, in points; 0 if predictions are not finite."""

    @abstractmethod
    def distinct(self, predictions: Any) -> set[Any]:
        """Return the distinct predictions, which show a collapse if there is only one."""

    def loss(self, predictions: Any, mean: float | None) -> float | None:
        """Return the loss. mean: that of the batches, or None if the runner computes none."""
        return mean if mean is None or self.is_finite(predictions) else float("nan")

    def save(self, folder: Path, predictions: Any) -> None:
        """Write the predictions into `folder`, if they have a file format."""
        return


@functools.lru_cache(maxsize=16)  # each of a run's seeds would trace the model again, for seconds
def outputs_and_losses(objective: Any) -> Callable[[Any, Batch], Outputs]:
    """Return a function (params, batch) -> outputs of a model, and its LOSSES if the batch has labels."""
    mean = dataclasses.replace(objective, reduction="mean")

    def function(params: Any, batch: Batch) -> Outputs:
        outputs = mean.predict(params, batch)
        if {name.rpartition("/")[2] for name in batch}.isdisjoint(("label", "start")):
            return outputs
        sums, weights = mean(params, None, batch, None)[0], mean.totals(batch)
        return outputs | {LOSSES: {term: (sums[term], weights[term]) for term in sums}}

    return function


def score_splits(runner: Runner, splits: Mapping[str, Split]) -> Evaluation:
    """Run a model on splits by name, and score its predictions.

    The scores have the keys:
    loss: the mean over the splits; absent if the runner computes no loss.
    score: mean of the deciding scores.
    collapsed: whether all predictions are equal.
    scores: by split and metric.

    If the loss of a split that is `finite_only` is not finite, there are no scores.
    """
    predictions, losses, computed = dict[str, Any](), [], {}
    for name, split in splits.items():
        slots, outputs = computed[name] = runner.run_all(split)
        loss = None
        if all(LOSSES in output for output in outputs):
            loss = 0.0
            for term in outputs[0][LOSSES]:
                total, weight = np.array([output[LOSSES][term] for output in outputs], np.float64).sum(0)
                loss += float(total / weight) if weight else 0.0
        if split.finite_only and loss is not None and not np.isfinite(loss):
            nothing = {"loss": loss, "score": 0.0, "collapsed": False, "scores": {name: {}}}
            return nothing, lambda folder: None, {}  # train.loop raises NonFinite for this loss
        predictions[name] = split.predict(slots, outputs)
        losses.append(split.loss(predictions[name], loss))
    mean_loss = {} if None in losses else {"loss": float(np.mean(losses))}

    def save(folder: Path) -> None:
        for name, split in splits.items():
            split.save(folder, predictions[name])

    return mean_loss | score_predictions(predictions, splits), save, computed


def score_predictions(predictions: Mapping[str, Any], splits: Mapping[str, Split]) -> Scores:
    """Return the scores of `score_splits` without the loss, from the predictions by split."""
    scores = {name: split.scores(predictions[name]) for name, split in splits.items()}
    distinct = set().union(*(split.distinct(predictions[name]) for name, split in splits.items()))
    return {
        "score": float(np.mean([scores[name][metric] for name, split in splits.items() for metric in split.deciding])),
        "collapsed": len(distinct) == 1,
        "scores": scores,
    }


_LOG = logging.getLogger(__name__)

_SAMPLED = 1000  # number of examples in which [UNK] is counted
_SUBSET = 3  # random stream of draw_subset
T = TypeVar("T")
Purpose = Literal["train", "score", "predict"]  # "predict" needs no labels


class Unlabelled(UserError):
    """Raised if a data set of a task cannot be scored, because labels or answers are missing."""


class RowForm(NamedTuple):
    """The form of a model's inputs: rows of at most `max_length` tokens.

    padding: number of padding tokens after a row that affect the model's outputs.
    """

    tokenizer: Tokenizer
    max_length: int
    padding: int


class Predictions(NamedTuple):
    """Predictions for N examples, in order.

    The task decides what `values` and `probabilities` hold:
    classification: label indices (N,), -1 if no label reaches its threshold; probabilities (N,C) of C labels.
    multi_label: whether each label's probability reaches its threshold or is above 0.5, (N,C); probabilities (N,C).
    regression: numbers (N,); None.
    tokens: for each example, an array with the tag index of each word; an array with the predicted tags'
    probabilities. The tag index of a word that was cut off is -1.
    entities: for each text, the records of its entities; None.
    span: an `answers.Answered` for each question; None.

    cut: (N,) bool, whether the text or the question was cut. records: see `tasks.predictions`. counts: how many
    examples are in a state, such as (3, "empty").
    """

    values: Any
    probabilities: Any
    cut: np.ndarray
    records: Iterable[dict[str, Any]]
    counts: list[tuple[int, str]]


@dataclass(frozen=True)
class TaskKind(ABC):
    """A task of one kind, which defines the head, and how examples are read, encoded and predicted.

    recipe: the config of a fine-tuning run, or of a model's training. task: the files, labels and metrics.
    """

    recipe: Finetune
    task: Any
    unit: ClassVar[str] = "examples"  # plural noun for its examples in messages
    skipped_unit: ClassVar[str] = "rows"

    def with_recipe(self, recipe: Finetune) -> Self:
        """Return the task with another config, which names the same files."""
        return dataclasses.replace(self, recipe=recipe)

    @classmethod
    @abstractmethod
    def named(cls, model: "TaskModel", name: str, data_dir: str) -> Self:
        """Return the task `name`; raises ConfigError for a task of another kind.

        name: empty if neither the user nor the model names one. data_dir: folder of the task's files; empty: the folder
        used in training.
        """

    @classmethod
    @abstractmethod
    def unnamed(cls, model: "TaskModel") -> Self:
        """Return a task for predictions, which need no files; raises UserError if the model predicts nothing."""

    @staticmethod
    def fit(recipe: Finetune, longest: int) -> Finetune:
        """Return the config for rows of at most `longest` tokens; raises UserError if they have no room."""
        return recipe

    def adapt(self, model: "TaskModel") -> "TaskModel":
        """Return the model with its outputs in the task's order; raises ConfigError if it has others."""
        return model

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def train(self) -> tuple[str, ...]:
        """Names of the data sets to train on."""
        return self.data_sets("train")

    @property
    def dev(self) -> tuple[str, ...]:
        """Names of the data sets that are scored in training."""
        return ("dev",)

    def data_sets(self, split: str) -> tuple[str, ...]:
        """Return the names of the data sets of a split; raises UserError if there is none."""
        return (split,)

    @abstractmethod
    def check(self) -> None:
        """Raise ConfigError for options of a run that contradict the task's files or each other."""

    @property
    @abstractmethod
    def head(self) -> Any:
        """The config of the head that the task needs."""

    def objective(self, module: Any) -> Objective:
        """Return the training objective of a model with the task's head."""
        head = self.head
        options = {"alpha": self.recipe.alpha} if head.distillable else {}
        return head.objective(module, reduction=self.recipe.reduction, **options)

    def check_model(self, model: Any) -> None:
        """Raise ConfigError for the config of a model that the task cannot train."""
        if not model.layers:
            raise ConfigError(
                f"model.kind = {model.kind} has no layers, so its tokens do not interact, as {self.name} needs. Use "
                'another model, or head = "embedding".'
            )

    def read(self, name: str, directory: str) -> SplitExamples:
        """Read a data set; raises UserError for a wrong file."""
        return self.task.read(name, directory)

    def read_files(self) -> dict[str, SplitExamples]:
        """Read the training and development files; raises UserError if one is wrong."""
        return {name: self.read(name, self.recipe.data_dir) for name in (*self.train, *self.dev)}

    def note(self, name: str) -> str:
        """Return a note for the user on what a data set holds, or ""."""
        return ""

    @abstractmethod
    def check_labels(self, name: str, read: SplitExamples) -> None:
        """Raise Unlabelled if the examples of a data set cannot be scored."""

    @abstractmethod
    def encode(self, examples: Sequence[Any], name: str, form: RowForm, purpose: Purpose = "score") -> Split:
        """Encode the examples of the data set `name`; raises UserError if one does not suit the purpose."""

    def decode(self, split: Any, slots: Sequence[Any], outputs: Sequence[Any]) -> Predictions:
        """Return the predictions of a model's outputs for a split that is encoded to "predict"."""
        raise NotImplementedError(f"{type(self).__name__} predicts nothing. Define `decode`.")

    @property
    def notes(self) -> dict[str, str | int]:
        """Options that predictions depend on, for the saved model's `source`."""
        return {}

    def read_splits(self, form: RowForm) -> tuple[Split, dict[str, Split], dict[str, dict[str, int]]]:
        """Read and encode the splits, and report their sizes; raises UserError for wrong files.

        Returns the training split, the development splits by name, and the number of skipped examples by split and
        reason.
        """
        read = self.read_files()
        drawn = self.draw_subset([example for name in self.train for example in read[name].examples])
        if ambiguous := sum(read[name].ambiguous for name in self.train):
            _LOG.info(
                f"train: {ambiguous:,} answers occur more than once in their paragraph; the first occurrence counts"
            )
        train = self.encode(drawn, "train", form, "train")
        dev = {name: self.encode(read[name].examples, name, form) for name in self.dev}
        skipped = {name: dict(data.skipped) for name, data in [*read.items(), ("train", train)] if data.skipped}
        log_skipped(skipped, self.skipped_unit)
        for name, split in {"train": train, **dev}.items():
            _LOG.info(f"{name}: {split.summary}")
        return train, dev, skipped

    def add_teacher(
        self, student: Any, train: Any, dev: Mapping[str, Any], teacher: Location, mesh: jax.sharding.Mesh
    ) -> tuple[Any, Mapping[str, Any], dict[str, Any]]:
        """Return the training and development splits with the teacher's outputs, and its entry for run.json.

        student: the config of the model to train. Raises ConfigError for a teacher of another task.
        """
        raise NotImplementedError(f"{self.name} has no teacher")

    def finish(
        self, model: Pretrained, dev: Mapping[str, Any], outputs: SplitOutputs
    ) -> tuple[Pretrained, dict[str, Any] | None]:
        """Return a trained model with what its outputs for the development splits determine, and a document of it."""
        return model, None

    def measures(self, splits: Mapping[str, Any], outputs: SplitOutputs) -> dict[str, float]:
        """Return further scores of a model's outputs for splits, by name."""
        return {}

    def compare(self, train: Any, dev: Mapping[str, Any], words: np.ndarray) -> dict[str, Any]:
        """Return the scores of simple models for comparison, {} without any. words: the word embeddings (V,E)."""
        return {}

    def check_test_file(self) -> None:
        """Raise UserError if the test file named in [own] is missing; else the error would come after training."""
        if self.recipe.task == "own" and self.recipe.own.test:
            self.recipe.own.open("test", self.recipe.data_dir)

    def draw_subset(self, examples: list[T]) -> list[T]:
        """Draw `train_rows` examples (0: all) by `seed`, in file order; raises ConfigError if there are fewer."""
        count = self.recipe.train_rows
        if count > len(examples):
            raise ConfigError(
                f"train_rows = {count} is more than the {len(examples)} {self.unit} of {self.name}. Use a smaller "
                "number, or 0 for all."
            )
        return [examples[index] for index in sorted(self.shuffled(len(examples))[:count])] if count else examples

    def shuffled(self, count: int) -> list[int]:
        """Return the indices of `count` examples in an order drawn by `seed`."""
        keys = fold_arrays(fold(self.recipe.seed, _SUBSET), np.arange(count))
        return np.argsort(keys, kind="stable").tolist()


def build_head(recipe: Finetune, usual: type[HeadConfig], kind: str, **options: Any) -> Any:
    """Return the head that `recipe.head` names, by default the `usual` one, with the `options` that are its fields.

    Raises ConfigError if the head is not for tasks of this `kind`, or lacks an option that the config changes.
    """
    chosen = usual if recipe.head == "task" else KINDS[recipe.head]
    if options.get("hidden") == "model":
        options["hidden"] = "none"  # until `load_starting_model` knows the model
    names = {field.name for field in dataclasses.fields(cast(Any, chosen))}
    head = chosen(**{name: value for name, value in options.items() if name in names})
    if head.task_kind != kind:
        raise ConfigError(
            f"head = {recipe.head!r} is for tasks of kind {head.task_kind}, not for {recipe.task}, whose kind is "
            f"{kind}. Remove head, or choose another task."
        )
    lacking = [name for name in options if name not in names and hasattr(recipe, name)]
    if chosen is not usual and lacking and (field := changed_field(recipe, lacking)):
        raise ConfigError(f"{field} does not apply to head = {recipe.head!r}, which has no such option. Remove it.")
    return head


def check_options(recipe: Finetune, kind: str, name: str) -> None:
    """Raise ConfigError for a changed option that does not apply to the task `name` of a kind in APPLIES."""
    for option, kinds in APPLIES.items():
        if kind not in kinds and (field := changed_field(recipe, (option,))):
            raise ConfigError(f"{field} does not apply to task = {name}, which is of kind {kind}. Remove it.")
    if name != "own" and (field := changed_field(recipe, ("own",))):
        raise ConfigError(f"{field} applies only to task = own, not to task = {name}. Remove it.")


def changed_field(table: Any, names: Iterable[str] = ()) -> str | None:
    """Return "name = value" of the table's first field that differs from its default, or None.

    The config of a run has hidden = "none" for heads without such a layer, so this value counts as the default.

    names: fields to look at; empty: all.
    """
    for field in dataclasses.fields(table):
        value = getattr(table, field.name)
        if names and field.name not in names:
            continue
        if dataclasses.is_dataclass(value):
            if inner := changed_field(value):
                return f"{field.name}.{inner}"
        elif value != field.default and (field.name, value) != ("hidden", "none"):
            shown = [head.name for head in value] if field.name == "heads" else value
            return f"{field.name} = {shown!r}"
    return None


def warn_unknown(tokenizer: Tokenizer, examples: Sequence[Example | Question], label: str) -> None:
    """Warn if more than 20 % of the examples' tokens are [UNK]. label: name of the examples."""
    if (share := _unknown_share(tokenizer, examples)) > UNKNOWN_ERROR:
        _LOG.warning(f"{describe_unknown(share, label)}. The model was trained on other text.")


def check_split(tokenizer: Tokenizer, examples: Sequence[Example | Question], name: str) -> None:
    """Warn if too many of a split's tokens are [UNK]: more than 1 % of `train` or 20 % of another split.

    Raises CorpusError if more than 20 % of `train` are [UNK].
    """
    if name == "train":
        check_unknown(_unknown_share(tokenizer, examples), name, inherited=True)
    else:
        warn_unknown(tokenizer, examples, name)


def _unknown_share(tokenizer: Tokenizer, examples: Sequence[Example | Question]) -> float:
    """Return the share of [UNK] among the tokens of at most 1,000 of the examples."""
    sample = examples[:: len(examples) // _SAMPLED + 1]
    return tokenizer.unknown_share([text for example in sample for text in example.texts])


def log_skipped(skipped: Mapping[str, Mapping[str, int]], unit: str) -> None:
    """Report the number of skipped examples by split and reason. unit: a noun for examples."""
    for name, reasons in skipped.items():
        _LOG.info(f"{name}: skipped {', '.join(f'{count} {unit} ({reason})' for reason, count in reasons.items())}")
