"""Predict GLUE's test sets with fine-tuned models, for a submission to the leaderboard."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from bertzoo.core.errors import UserError
from bertzoo.data.sources.tfds import PREFIX
from bertzoo.finetuning.evaluate import TaskModel, load_task_model
from bertzoo.finetuning.labels import LabelTask
from bertzoo.tasks import submission
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.task import Example

_LOG = logging.getLogger(__name__)


def predict_test_sets(
    paths: Sequence[Path],
    *,
    data_dir: str,
    wnli: submission.Wnli,
    batch_size: int,
    rows: Mapping[str, int] | None = None,
) -> dict[str, dict[str, int | float]]:
    """Return {test set: {key of an example: index of the predicted label, or predicted number}}.

    paths: one model for each task.
    data_dir: the parent of GLUE's folders; empty: the data_dir of each model's run.
    wnli: with "majority", a model of WNLI is not used.
    rows: {test set: required number of rows}; None: the numbers of rows in GLUE's test sets.

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
        models[name] = model.for_task(model.task(name))
    if "wnli" in models and wnli == "majority":
        _LOG.info(
            f"{models.pop('wnli').path} is left out: WNLI gets its most common label. --wnli=predicted uses the model."
        )
    submission.check_files([file for task in models for file in _files(task)], wnli)
    tests = {task: _tests(task, data_dir or model.recipe.data_dir) for task, model in models.items()}
    for splits in tests.values():
        for name, examples in splits.items():
            submission.check_rows(name, [example.key for example in examples], rows)
    predictions: dict[str, dict[str, int | float]] = {}
    for task, splits in tests.items():
        model = models.pop(task)  # frees the previous task's parameters
        for name, examples in splits.items():
            values, _, cut, *_ = model.predict(examples, batch_size)
            note = f", {int(cut.sum()):,} of them cut to {model.max_length} tokens" if cut.any() else ""
            _LOG.info(f"{name}: {len(examples):,} rows{note}")
            predictions[name] = {example.key: value for example, value in zip(examples, values.tolist(), strict=True)}
    return predictions


def _files(task: str) -> list[str]:
    """Return the test sets (keys of submission.FILES) that the model of a task predicts."""
    return ["mnli_matched", "mnli_mismatched", "ax"] if task == "mnli" else [task]


def _tests(task: str, directory: str) -> dict[str, list[Example]]:
    if task != "mnli":
        return {task: GLUE[task].read("test", directory).examples}
    splits = {split.replace("test", task): GLUE[task].read(split, directory).examples for split in GLUE[task].test}
    return {**splits, "ax": _diagnostic(directory)}


def _diagnostic(directory: str) -> list[Example]:
    """Read GLUE's diagnostic set from MNLI's `directory`, else from a folder AX or diagnostic beside `directory`."""
    try:
        return GLUE["ax"].read("test", directory).examples
    except UserError:
        parent = Path(directory).absolute().parent
        if directory.startswith(PREFIX) or not any((parent / name).is_dir() for name in ("AX", "diagnostic", "ax")):
            raise
        return GLUE["ax"].read("test", parent).examples
