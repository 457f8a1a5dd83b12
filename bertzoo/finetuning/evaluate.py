"""Score a fine-tuned model on a split or a file, or predict labels or answers for texts."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk
from bertzoo.finetuning import predict_answers, predict_labels
from bertzoo.finetuning.embed import EmbeddingModel, embedding_model
from bertzoo.finetuning.embedding_scores import SCORERS, score_embeddings
from bertzoo.finetuning.mteb_tasks import PREFIX, score_mteb
from bertzoo.finetuning.predict_answers import QuestionModel
from bertzoo.finetuning.predict_labels import LabelModel
from bertzoo.finetuning.saved_model import SavedModel, Unlabelled
from bertzoo.finetuning.scoring import score_splits
from bertzoo.finetuning.task_kind import warn_unknown
from bertzoo.tasks import inputs, predictions
from bertzoo.tasks.squad import Question
from bertzoo.tasks.task import Example

Say = Callable[[str], None]
M = TypeVar("M", bound=SavedModel)


TaskModel = LabelModel | QuestionModel | EmbeddingModel


def task_model(model: SavedModel) -> TaskModel:
    """Convert a saved model to the model class of its head; raises UserError if the head is of no task."""
    return predict_answers.question_model(model) or embedding_model(model) or predict_labels.label_model(model)


def predictor(model: TaskModel) -> LabelModel | QuestionModel:
    """Return the model itself; raises UserError if it embeds texts."""
    if isinstance(model, EmbeddingModel):
        raise UserError(f"{model.path} predicts no labels: it embeds texts. Use `bertzoo embed` for its vectors.")
    return model


def evaluate_split(
    model: TaskModel,
    *,
    split: str = "",
    task: str = "",
    data_dir: str = "",
    batch_size: int = 0,
    input: str = "",
    output: Path | None = None,
    tell: Say = lambda line: None,
) -> dict[str, Any]:
    """Score a model on a split of a task, or on the rows of the file `input`.

    split: train, dev or test; empty: dev.
    task: a task's name; empty: the model's own task.
    data_dir: folder of the task's files; empty: the folder used in training.
    batch_size: rows in a batch; 0: as in training.
    input: for a model of the task `own`, a file with the columns of the training file.
    output: folder for the answers to questions.

    Returns a dictionary:
    task: the task's name.
    examples: number of examples by split.
    skipped: number of malformed rows by split and reason, if there are any.
    scores: points by split and metric.
    score: the figure that chooses a run's best epoch.
    loss: the mean loss.
    collapsed: whether all predictions are equal.
    The tasks of `embedding_scores.SCORERS` and of mteb, for a model that embeds texts, have no loss and no `collapsed`.
    Raises UserError if the split has no labels.
    """
    if isinstance(model, EmbeddingModel) and task in SCORERS:
        return score_embeddings(model, task, input=input, data_dir=data_dir, split=split, batch_size=batch_size)
    if isinstance(model, EmbeddingModel) and task.startswith(PREFIX):
        return score_mteb(model, task, input=input, data_dir=data_dir, split=split, batch_size=batch_size)
    if input and (split or task or data_dir):
        raise UserError(f"--input={input} names the examples. Leave --split, --task and --data_dir out.")
    if output is not None and not isinstance(model, QuestionModel):
        raise UserError(f"output = {output} applies only to answers, but {model.path} gives none. Leave output out.")
    model, split = (_on_file(model, input), "test") if input else (model, split or "dev")
    directory = data_dir or model.recipe.data_dir
    scored_task: Any = model.task(task, data_dir)
    check_files(model, directory, split, scored_task.name)
    model = model.for_task(scored_task, tell)
    try:
        examples, skipped = model.read_examples(scored_task, split, directory, tell)  # pyright: ignore[reportArgumentType]
    except Unlabelled as error:
        raise UserError(f"{error} {_advise_predict(model, input, error.part, task, data_dir)}") from error
    for part, rows in examples.items():
        warn_unknown(model.tokenizer, rows, part, tell)
    splits: Any = {part: model.encode_split(scored_task, rows, part) for part, rows in examples.items()}  # pyright: ignore[reportArgumentType]
    figures, save = score_splits(model.runner([part.rows for part in splits.values()], batch_size), splits)
    if output is not None:
        save(output)
    counts = {part: len(rows) for part, rows in examples.items()}
    return {"task": scored_task.name, "examples": counts, **({"skipped": skipped} if skipped else {}), **figures}


def _advise_predict(model: SavedModel, input: str, split: str, task: str, data_dir: str) -> str:
    flags = {"input": input, "split": "" if input else split, "task": task, "data_dir": data_dir}
    words = ["bertzoo", "predict", str(model.path), *(f"--{name}={value}" for name, value in flags.items() if value)]
    return f"Use `{shlex.join(words)}` for its predictions."


def check_files(model: SavedModel, directory: str, split: str, task: str) -> None:
    """Raise UserError if neither the model's config nor `directory` says where the files of a split are."""
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


def _on_file(model: M, file: str) -> M:
    """Return the model with `file` as the test file of its task; raises UserError for other tasks than `own`."""
    if model.task_name != "own":
        raise UserError(
            f"--input={file} applies only to models of the task `own`, but the task of {model.path} is "
            f"{model.task_name or 'unknown'}. Use --data_dir."
        )
    path = on_disk(file, "--input", "Copy it to this machine.").absolute()
    return replace(model, recipe=replace(model.recipe, own=replace(model.recipe.own, test=str(path))))


def predict_texts(
    model: TaskModel, texts: Sequence[str] | Sequence[tuple[str, str]], batch_size: int = 0
) -> list[dict[str, Any]]:
    """Return a prediction record (see `tasks.predictions`) for each text or pair of texts, in order.

    A QuestionModel takes pairs (question, paragraph with the answer). Raises UserError for an EmbeddingModel.
    """
    model = predictor(model)
    pair = isinstance(model, QuestionModel) or model.pair or any(not isinstance(text, str) for text in texts)
    words = isinstance(model, LabelModel) and model.kind == "tokens"
    flat = [part for text in texts for part in ((text,) if isinstance(text, str) else text)]
    examples = inputs.from_texts(flat, inputs.InputForm(pair=pair, words=words))
    if isinstance(model, QuestionModel):
        return list(predictions.answer_records(model.answer(to_questions(examples, "the texts"), batch_size).answered))
    values, chances, cut = model.predict(examples, batch_size)
    return list(predictions.label_records(examples, model.labels, values, chances, cut))


def to_questions(examples: Sequence[Example], origin: str) -> list[Question]:
    """Convert pairs (question, paragraph) to Questions. origin: the name of the pairs in errors."""
    return [
        Question(pair.key, pair.text_a, pair.text_b or "", (), False, "", f"{origin} question {int(pair.key) + 1}")
        for pair in examples
    ]
