"""A fine-tuned model: score it on a split or a file, or predict labels or answers for texts or GLUE's test sets."""

import logging
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import on_disk
from bertzoo.finetuning.embed import EmbeddingModel
from bertzoo.finetuning.embedding import EmbeddingTask
from bertzoo.finetuning.embedding_scores import SCORERS, score_embeddings
from bertzoo.finetuning.entities import EntityTask
from bertzoo.finetuning.labels import LabelSplit, LabelTask
from bertzoo.finetuning.multi_task import MultiTask
from bertzoo.finetuning.question_answering import QuestionTask
from bertzoo.finetuning.saved_model import SavedModel, load_saved
from bertzoo.finetuning.task_kind import (
    Predictions,
    Purpose,
    RowForm,
    Split,
    TaskKind,
    Unlabelled,
    log_skipped,
    score_splits,
    warn_unknown,
)
from bertzoo.tasks import glue, readers
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.squad import Question
from bertzoo.tasks.task import Example

_LOG = logging.getLogger(__name__)

CLASSES: dict[str, type[TaskKind]] = {  # other tasks have labels
    "span": QuestionTask,
    "embedding": EmbeddingTask,
    "entities": EntityTask,
    "multi_task": MultiTask,
}


@dataclass(frozen=True, kw_only=True)
class TaskModel(SavedModel):
    """A fine-tuned model with the head of a task, which it predicts and is scored on."""

    @property
    def kind(self) -> Any:
        """Kind of the model's tasks, as `tasks.task.Kind`, or "multi_task"."""
        kind = self.pretrained.head.task_kind
        return "entities" if kind == "tokens" and (self.aggregation or self.recipe.own.kind == "entities") else kind

    @property
    def task_class(self) -> type[TaskKind]:
        return CLASSES.get(self.kind, LabelTask)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the order of the logits; empty for a regression, and for other tasks."""
        return () if self.kind == "regression" else self.pretrained.head.labels

    @property
    def heads(self) -> list[Self]:
        """The model under each head of a MultiTaskHead alone, for what its task reads of head and config."""
        heads = zip(self.pretrained.head.heads, self.recipe.own.heads, strict=True)
        return [
            replace(
                self,
                pretrained=replace(self.pretrained, head=named.head),
                recipe=replace(self.recipe, own=columns.apply(self.recipe.own)),
            )
            for named, columns in heads
        ]

    def with_aggregation(self, aggregation: str) -> Self:
        """Return a copy that predicts entities of raw text; raises UserError if no head of the model tags words."""
        models = self.heads if self.kind == "multi_task" else [self]
        if all(model.kind not in ("tokens", "entities") for model in models):
            raise UserError(
                f"--aggregation={aggregation} does not apply to {self.path}, which tags no words. Leave --aggregation "
                "out."
            )
        return replace(self, aggregation=aggregation)

    @property
    def pair(self) -> bool:
        """Whether an example is known to have two texts."""
        if self.task_class is QuestionTask:
            return True
        if self.task_name == "own":
            return bool(self.recipe.own.text_b)
        return self.task_name in GLUE and GLUE[self.task_name].pair

    def task(self, name: str = "", data_dir: str = "") -> TaskKind:
        """Return the task `name`, or the model's own if empty, as TaskKind.named does."""
        name = name or self.task_name
        if name == "own" and self.recipe.task != "own" and "own" not in self.pretrained.source:
            raise ConfigError(
                f"{self.path} does not record the columns of the task `own`. Name a run of that task or another --task."
            )
        return self.task_class.named(self, name, data_dir)

    def fit(self, longest: int) -> Self:
        """Return a copy with rows of at most `longest` tokens; raises UserError if the task has no room there."""
        recipe = self.task_class.fit(self.recipe, longest)
        return replace(self, recipe=recipe, max_length=min(self.max_length, longest))

    def encode(self, task: TaskKind, examples: Sequence[Any], name: str = "", purpose: Purpose = "score") -> Split:
        """Encode examples of `task`. name: the data set's name."""
        split = task.encode(examples, name, RowForm(self.tokenizer, self.max_length, self.padding), purpose)
        thresholds = getattr(self.pretrained.head, "thresholds", None)
        return replace(split, thresholds=thresholds) if isinstance(split, LabelSplit) else split

    def predict(self, examples: Sequence[Any], batch_size: int = 0) -> Predictions:
        """Predict labels or answers, whatever the examples' labels and the batch size are.

        Raises UserError if the model embeds texts.
        """
        task = self.task_class.unnamed(self)
        split = self.encode(task, examples, purpose="predict")
        slots, outputs = self.runner([split.rows], batch_size).run_all(split)
        return task.decode(split, slots, outputs)


def task_model(model: SavedModel) -> TaskModel:
    """Convert a saved model to a TaskModel; raises UserError if the head is of no task."""
    head = model.pretrained.head
    if not head.task_kind:
        raise UserError(
            f"{model.path} has a head of kind {head.kind}, not the head of a task. Fine-tune the model first."
        )
    return TaskModel(**vars(model))


def load_task_model(path: Path) -> TaskModel:
    """Load a fine-tuned model. path: as in `saved_model.load_saved`."""
    return task_model(load_saved(path))


def evaluate_split(
    model: TaskModel,
    *,
    split: str = "",
    task: str = "",
    data_dir: str = "",
    batch_size: int = 0,
    input: str = "",
    output: Path | None = None,
) -> dict[str, Any]:
    """Score a model on a split of a task, or on the rows of the file `input`.

    split: train, dev or test; empty: dev.
    task, data_dir, batch_size: empty or 0: those of training.
    input: for a model of the task `own`, a file with the columns of the training file.
    output: folder for the answers to questions.

    Returns the name of the `task`, the number of `examples` by split, and:
    skipped: number of malformed rows by split and reason, if there are any.
    scores: points by split and metric.
    score: the metric that chooses a run's best epoch.
    ece: of a classifier, the expected calibration error in points (`tasks.decision.reliability`).
    loss: the mean loss.
    collapsed: whether all predictions are equal.
    The tasks of `embedding_scores.SCORERS`, for a model that embeds texts, have no loss and no `collapsed`.
    Raises UserError if the split has no labels.
    """
    if output is not None and model.kind != "span":
        raise UserError(f"output = {output} applies only to answers, but {model.path} gives none. Leave output out.")
    if model.kind == "embedding" and task in SCORERS:
        embedder = EmbeddingModel(**vars(model))
        return score_embeddings(embedder, task, input=input, data_dir=data_dir, split=split, batch_size=batch_size)
    if input and (split or task or data_dir):
        raise UserError(f"--input={input} names the examples. Leave --split, --task and --data_dir out.")
    split = split or "dev"
    if input:
        if model.task_name != "own":
            raise UserError(
                f"--input={input} applies only to models of the task `own`, but the task of {model.path} is "
                f"{model.task_name or 'unknown'}. Use --data_dir."
            )
        split, file = "test", str(on_disk(input, "--input", "Copy it to this machine.").absolute())
        model = replace(model, recipe=replace(model.recipe, own=replace(model.recipe.own, test=file)))
    directory = data_dir or model.recipe.data_dir
    scored = model.task(task, data_dir)
    check_files(model, directory, split, scored.name)
    model = scored.adapt(model)
    splits: dict[str, Split] = {}
    skipped: dict[str, dict[str, int]] = {}
    for name in scored.data_sets(split):
        read = scored.read(name, directory)
        skipped |= {name: dict(read.skipped)} if read.skipped else {}
        log_skipped({name: read.skipped} if read.skipped else {}, "rows")
        try:
            scored.check_labels(name, read)
        except Unlabelled as error:
            flags = {"input": input, "split": "" if input else name, "task": task, "data_dir": data_dir}
            words = [str(model.path), *(f"--{flag}={value}" for flag, value in flags.items() if value)]
            advice = f"Use `bertzoo predict {shlex.join(words)}` for its predictions."
            raise UserError(f"{error} {advice}") from error
        if note := scored.note(name):
            _LOG.info(f"{name}: {note}")
        warn_unknown(model.tokenizer, read.examples, name)
        splits[name] = model.encode(scored, read.examples, name)
    results, save, outputs = score_splits(model.runner([s.rows for s in splits.values()], batch_size), splits)
    results |= scored.measures(splits, outputs)
    if output is not None:
        save(output)
    counts = {name: len(encoded.examples) for name, encoded in splits.items()}
    return {"task": scored.name, "examples": counts, **({"skipped": skipped} if skipped else {}), **results}


def check_files(model: SavedModel, directory: str, split: str, task: str) -> None:
    """Raise UserError if neither the model's config nor `directory` names the files of a split."""
    if model.recipe.task:
        return
    if task == "own" and not getattr(model.recipe.own, split, ""):
        raise UserError(
            f"{model.path} does not record the {split} file of the task `own`. Name a file with --input=FILE."
        )
    if task != "own" and not directory:
        raise UserError(
            f"{model.path} does not record where the {split} set of {task} is. Name its folder with --data_dir."
        )


def predict_texts(
    model: TaskModel, texts: Sequence[str] | Sequence[tuple[str, str]], batch_size: int = 0
) -> list[dict[str, Any]]:
    """Return a prediction record (see `tasks.predictions`) for each text or pair of texts, in order.

    A model that answers questions takes pairs (question, paragraph with the answer). Raises UserError if the model
    embeds texts, or if one of the texts is neither a text nor a pair, or not of the first one's form.
    """
    model.task_class.unnamed(model)  # raises before the texts are read
    items: list[Any] = list(texts)
    for index, text in enumerate(items):
        is_pair = isinstance(text, Iterable) and not isinstance(text, str)
        is_pair = is_pair and [isinstance(member, str) for member in text] == [True, True]
        if not (is_pair or isinstance(text, str)) or is_pair == isinstance(items[0], str):
            raise UserError(f"text {index} is {text!r}. Give texts, or pairs of texts, all of one form.")
    if not items:
        return []
    pair = model.pair or not isinstance(items[0], str)
    flat = [member for text in items for member in ((text,) if isinstance(text, str) else text)]
    examples = readers.from_texts(flat, readers.InputForm(pair=pair, words=model.kind == "tokens"))
    inputs = to_questions(examples, "the texts") if model.kind == "span" else examples
    return list(model.predict(inputs, batch_size).records)


def to_questions(examples: Sequence[Example], origin: str) -> list[Question]:
    """Convert pairs (question, paragraph) to Questions. origin: the name of the pairs in errors."""
    return [
        Question(pair.key, pair.text_a, pair.text_b or "", (), False, "", f"{origin} question {int(pair.key) + 1}")
        for pair in examples
    ]


def predict_test_sets(
    paths: Sequence[Path], *, data_dir: str, wnli: glue.Wnli, batch_size: int
) -> dict[str, dict[str, int | float]]:
    """Return {test set: {key of an example: index of the predicted label, or predicted number}}.

    paths: one model for each task. data_dir: the parent of GLUE's folders; empty: the data_dir of each model's run.
    wnli: with "majority", a model of WNLI is not used.

    Reads and counts all test sets before the first prediction. Raises UserError if a task or row is missing or occurs
    twice.
    """
    models: dict[str, TaskModel] = {}
    for path in paths:
        model = load_task_model(path)
        name = model.task_name
        if model.task_class is not LabelTask or name not in GLUE or not GLUE[name].train:
            raise UserError(
                f"{path} is fine-tuned on {name or 'an unknown task'}, not on a task of GLUE. Leave it out."
            )
        if name in models:
            raise UserError(f"{path} and {models[name].path} are both fine-tuned on {name}. Leave one model out.")
        models[name] = model.task(name).adapt(model)
    if "wnli" in models and wnli == "majority":
        _LOG.info(
            f"{models.pop('wnli').path} is left out: WNLI gets its most common label. --wnli=predicted uses the model."
        )
    sets = {"mnli": ("mnli_matched", "mnli_mismatched", "ax")}  # of other tasks, the one with their name
    glue.check_files([name for task in models for name in sets.get(task, (task,))], wnli)
    tests = {task: _tests(task, data_dir or model.recipe.data_dir) for task, model in models.items()}
    for splits in tests.values():
        for name, examples in splits.items():
            glue.check_rows(name, [example.key for example in examples])
    predictions: dict[str, dict[str, int | float]] = {}
    for task, splits in tests.items():
        model = models.pop(task)  # frees the previous task's parameters
        for name, examples in splits.items():
            values, _, cut, *_ = model.predict(examples, batch_size)
            note = f", {int(cut.sum()):,} of them cut to {model.max_length} tokens" if cut.any() else ""
            _LOG.info(f"{name}: {len(examples):,} rows{note}")
            predictions[name] = {example.key: value for example, value in zip(examples, values.tolist(), strict=True)}
    return predictions


def _tests(task: str, directory: str) -> dict[str, list[Example]]:
    if task != "mnli":
        return {task: GLUE[task].read("test", directory).examples}
    splits = {split.replace("test", task): GLUE[task].read(split, directory).examples for split in GLUE[task].test}
    return {**splits, "ax": _diagnostic(directory)}


def _diagnostic(directory: str) -> list[Example]:
    """Read GLUE's diagnostic set from MNLI's `directory`, or else from the folder above it."""
    errors: list[UserError] = []
    for folder in (Path(directory), Path(directory).absolute().parent):
        try:
            return GLUE["ax"].read("test", folder).examples
        except UserError as error:
            errors.append(error)
    raise errors[0]
