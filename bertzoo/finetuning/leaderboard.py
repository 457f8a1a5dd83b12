"""What fine-tuned models say of GLUE's test sets, by the names that a submission has for them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bertzoo.core.errors import UserError
from bertzoo.data.sources.tfds import PREFIX
from bertzoo.finetuning import predict_labels
from bertzoo.finetuning.predict_labels import Trained
from bertzoo.tasks import submission
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.task import Example

Tests = dict[str, list[Example]]  # by the names of submission.FILES


def predictions(
    paths: Sequence[Path],
    *,
    data_dir: str,
    wnli: submission.Wnli,
    batch_size: int,
    tell: Callable[[str], None],
    rows: Mapping[str, int] | None = None,
) -> dict[str, dict[str, int | float]]:
    """What the models at `paths`, one of each task, say of the test sets, as `submission.write` takes it.

    data_dir: where GLUE's folders are; empty: where each run's data is. All test sets are read and counted before a
    model says anything. Raises UserError for tasks and rows that are missing, or there twice. rows: as in `write`.
    """
    models: dict[str, Trained] = {}
    for path in paths:
        model = predict_labels.load(path)
        if model.named not in GLUE or not GLUE[model.named].train:
            raise UserError(
                f"{path} is fine-tuned on {model.named or 'no task that it names'}, which is none of GLUE's"
            )
        if model.named in models:
            raise UserError(f"{path} and {models[model.named].path} are both of {model.named}: give one of them")
        models[model.named] = model.of(GLUE[model.named], tell)
    if "wnli" in models and wnli == "majority":
        tell(
            f"{models.pop('wnli').path} is left out: WNLI gets the majority's label; --wnli=predicted takes the model's"
        )
    submission.check_files([name for task in models for name in _names(task)], wnli)
    found: dict[str, dict[str, int | float]] = {}
    tests = {task: _tests(task, data_dir or model.recipe.data_dir) for task, model in models.items()}
    for name, examples in (pair for each in tests.values() for pair in each.items()):
        submission.check_rows(name, [example.key for example in examples], rows)
    for task in tests:
        model = models.pop(task)  # whose parameters are needed no longer afterwards
        for name, examples in tests[task].items():
            said = model.predict(examples, batch_size)
            cut = f", {int(said.cut.sum()):,} of them cut to {model.max_length} tokens" if said.cut.any() else ""
            tell(f"{name}: {len(examples):,} rows{cut}")
            found[name] = {example.key: value for example, value in zip(examples, said.values.tolist(), strict=True)}
    return found


def _names(task: str) -> list[str]:
    """The files of a submission that a task's model makes."""
    return ["mnli_matched", "mnli_mismatched", "ax"] if task == "mnli" else [task]


def _tests(task: str, directory: str) -> Tests:
    if task != "mnli":
        return {task: GLUE[task].read("test", directory).examples}
    both = {split.replace("test", task): GLUE[task].read(split, directory).examples for split in GLUE[task].test}
    return {**both, "ax": _diagnostic(directory)}


def _diagnostic(directory: str) -> list[Example]:
    """The diagnostic set where MNLI is, or in a folder beside it."""
    try:
        return GLUE["ax"].read("test", directory).examples
    except UserError:
        beside = Path(directory).absolute().parent
        if directory.startswith(PREFIX) or not any((beside / name).is_dir() for name in ("AX", "diagnostic", "ax")):
            raise
        return GLUE["ax"].read("test", beside).examples
