"""Check every step of a pipeline before the first step starts, and estimate the cost of each."""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertzoo.core import config
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import is_url
from bertzoo.data import pipeline as corpora
from bertzoo.data.sources import pieces
from bertzoo.export.lengths import check_lengths, check_text_lengths
from bertzoo.export.options import TEXT_FORMATS
from bertzoo.export.text_input import TextModel, check_text_model, text_model
from bertzoo.finetuning.run import resolve_task
from bertzoo.finetuning.settings import Finetune
from bertzoo.heads import NoHead, parameter_shapes
from bertzoo.pipeline import verbs
from bertzoo.pipeline.recipe import Step
from bertzoo.pipeline.record import PipelineRecord, files_in, is_training
from bertzoo.pruning.settings import Prune
from bertzoo.runs import load_model
from bertzoo.runs.experiments import build_experiment

Parse = Callable[[Sequence[str]], list[Any]]  # returns a command line's configs, one for each run
_BYTES = 4  # bytes of a parameter
_STATE = 3  # arrays in a checkpoint: the parameters and the optimiser's two moments


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of a step.

    parameters: number of its model's parameters, 0 if unknown.
    size: bytes on disk of its checkpoints and models.
    """

    parameters: int = 0
    size: int = 0


def check_steps(record: PipelineRecord, steps: Sequence[Step], parse: Parse) -> dict[str, Cost]:
    """Return the cost of every step by name; raise UserError if options, models, data or disk space make a step fail.

    The options and models of every step are checked. Data and disk space are checked only for `steps`, the steps that
    will run.
    """
    recipes: dict[str, list[Any]] = {}
    for step in record.pipeline.steps:
        with _named(step):
            recipes[step.name] = parse(record.words(step))
            record.configs[step.name] = [config.dump(recipe) for recipe in recipes[step.name]]
    shapes: dict[str, Any] = {}  # by step: config of the model in its output, or None
    texts: dict[str, TextModel] = {}  # by step or input: facts of its model
    costs = {}
    read: set[Any] = set()
    for step in record.pipeline.steps:
        with _named(step):
            shapes[step.name] = _shape(record, step, recipes[step.name], shapes)
            costs[step.name] = _cost(shapes[step.name], recipes[step.name])
            _check_fit(record, step, recipes[step.name], shapes)
            _check_lengths(step, shapes[step.name])
            if step in steps and step.verb == "convert" and (to := step.options.get("to", "")) in TEXT_FORMATS:
                check_text_model(to, _text_model(record, step.name, recipes, texts))
            _check_examples(record, step, recipes)
            if step in steps:
                _check_data(record, step, recipes[step.name], read)
    _check_disk(record, steps, costs)
    return costs


class _named:
    """A context manager that starts the messages of errors with the step's name."""

    def __init__(self, step: Step):
        self.step = step

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UserError) and error.exit_code == UserError.exit_code:
            raise ConfigError(f"{self.step.name}: {error}") from error


def _shape(record: PipelineRecord, step: Step, recipes: Sequence[Any], shapes: Mapping[str, Any]) -> Any:
    """Return the config of the model that a step's output holds, or None if it is not known before the step runs.

    shapes: results of this function for earlier steps, by step name.
    """
    if step.verb in ("pretrain", "transfer"):
        return recipes[0].model
    if step.verb == "prune" or "from" not in step.links:
        return None
    return _linked(record, step, "from", shapes)


def _text_model(
    record: PipelineRecord, name: str, recipes: Mapping[str, Sequence[Any]], known: dict[str, TextModel]
) -> TextModel:
    """Return the properties that decide whether a model's file can take texts, as far as known before any step runs.

    name: the step that makes the model, or the input that names it. For an input at a URL, returns the defaults.
    known: {name: result of an earlier call}; the function adds the new result.
    """
    if name not in known:
        known[name] = (
            _input_model(record.pipeline.inputs[name])
            if name in record.pipeline.inputs
            else _output_model(record, record.pipeline.step(name), recipes, known)
        )
    return known[name]


def _input_model(place: str) -> TextModel:
    return TextModel() if is_url(place) else text_model(load_model.read_model(Path(place)))


def _output_model(
    record: PipelineRecord, step: Step, recipes: Mapping[str, Sequence[Any]], known: dict[str, TextModel]
) -> TextModel:
    recipe = next(iter(recipes[step.name]), None)
    if is_training(step) and recipe is not None:
        return TextModel(load_model.head_of(recipe), recipe.data.tokenizer)
    source = _text_model(record, step.links["from"], recipes, known)
    if recipe is not None:
        task = resolve_task(recipe)
        return TextModel(task.head, source.tokenizer, getattr(task.task, "pair", False))
    return source._replace(head=NoHead()) if step.options.get("head") == "none" else source


def _linked(record: PipelineRecord, step: Step, key: str, shapes: Mapping[str, Any]) -> Any:
    """Return the config of the model that a step's `key`, such as "from", names; None if unknown.

    shapes: as in `_shape`. Raises UserError if the key names an input that is no model.
    """
    name = step.links.get(key)
    if name is None or name not in record.pipeline.inputs:
        return shapes.get(name or "")
    path = Path(record.pipeline.inputs[name])
    if not is_url(str(path)) and verbs.MODEL in step.form.reads[key]:
        load_model.check_model(path)
    return None


def _check_fit(record: PipelineRecord, step: Step, recipes: Sequence[Any], shapes: Mapping[str, Any]) -> None:
    """Raise ConfigError if the model that a step reads has other shapes or fewer positions than the step needs.

    shapes: as in `_shape`.
    """
    tables = {"transfer": ("teacher", "teacher"), "prune": ("from", "model"), "pretrain": ("from", "model")}
    if step.verb in tables:
        key, table = tables[step.verb]
        source, described = _linked(record, step, key, shapes), getattr(recipes[0], table)
        if source is not None:
            ours, theirs = parameter_shapes(described, NoHead()), parameter_shapes(source, NoHead())
            for name in sorted(ours.keys() | theirs.keys()):
                if ours.get(name) != theirs.get(name):
                    raise ConfigError(
                        f"[{table}] has {name} of shape {ours.get(name)}, but the model of {step.links[key]} has "
                        f"{theirs.get(name)}. Make the two configs agree."
                    )
    model = shapes.get(step.name)
    if not step.form.by_task or model is None:
        return
    positions = model.max_positions
    for recipe in recipes:
        if recipe.max_length > positions:
            raise ConfigError(
                f"max_length = {recipe.max_length} is more than the model's {positions} positions. Use at most "
                f"{positions}."
            )


def _check_lengths(step: Step, model: Any) -> None:
    """Raise UserError if a conversion's --lengths do not fit its model or its format.

    A length may leave no room for text or exceed the model's positions. In the format onnx-text, some models need a
    single length.

    model: the model's config; None skips the checks.
    """
    if step.verb != "convert" or model is None:
        return
    lengths = [int(length) for length in step.options.get("lengths", "").split(",") if length]
    check_lengths(lengths, model.max_positions)
    if step.options.get("to") == "onnx-text":
        check_text_lengths(model, lengths)


def _check_examples(record: PipelineRecord, step: Step, recipes: Mapping[str, Sequence[Any]]) -> None:
    """Raise ConfigError if a step scores a converted model, but does not name the examples to score it on.

    A converted model, unlike a fine-tuning run, does not record the task's files.
    """
    source = step.links.get("from", "")
    if step.verb != "evaluate" or not source or source in record.pipeline.inputs:
        return
    converted = record.pipeline.step(source)
    tuned = recipes.get(converted.links.get("from", ""), ()) if converted.verb == "convert" else ()
    for task in {recipe.task for recipe in tuned if isinstance(recipe, Finetune)}:
        option = "input" if task == "own" else "data_dir"
        if option not in step.options:
            raise ConfigError(
                f"{source} is a converted model and does not record the files of the task {task}. Name the files with "
                f"options.{option} in [stages.{step.stage}]."
            )


def _check_data(record: PipelineRecord, step: Step, recipes: Sequence[Any], read: set[Any]) -> None:
    """Raise UserError if a step's text or task files are missing or wrong.

    read: keys of the data that earlier calls have checked. The function skips such data, and adds the keys of what it
    checks.
    """
    if step.form.by_task:
        for recipe in recipes:
            task = resolve_task(recipe)
            key = (task.name, recipe.data_dir, recipe.own, recipe.squad.heldout)
            if key not in read:
                task.check_files()
                read.add(key)
    elif (is_training(step) or step.verb == "tokenize") and recipes:
        data = recipes[0] if step.verb == "tokenize" else recipes[0].data
        outputs = {record.places.output(record.pipeline.step(name)) for name in record.pipeline.needs(step)}
        if data.source not in outputs and data.source not in read and not corpora.is_corpus(data.source):
            pieces.check_sources(data.parts, data.heldout, data.limits)
            read.add(data.source)


def _cost(model: Any, recipes: Sequence[Any]) -> Cost:
    if not recipes or (model is None and not isinstance(recipes[0], Prune)):
        return Cost()
    model = recipes[0].model if model is None else model
    parameters = sum(math.prod(shape) for shape in parameter_shapes(model, NoHead()).values())
    if isinstance(recipes[0], Finetune):
        return Cost(parameters=parameters, size=_BYTES * parameters * sum(recipe.seeds for recipe in recipes))
    if not hasattr(recipes[0], "run"):
        return Cost(parameters=parameters)
    checkpoints = recipes[0].run.keep_last + bool(recipes[0].run.keep_best) + 1  # one more while it is written
    return Cost(parameters=parameters, size=_BYTES * _STATE * parameters * checkpoints)


def stage_flops(recipe: Any) -> Iterator[tuple[int, int]]:
    """Yield (steps, FLOPs of a step) for every stage of training; pruning counts the FLOPs of the unpruned model."""
    if isinstance(recipe, Prune):
        parts = [recipe.scoring_recipe(recipe.model), recipe.tuning_recipe(recipe.model)] * recipe.cut.iterations
    else:
        parts = [recipe]
    for part in parts:
        built = build_experiment(part)
        for index, stage in enumerate(part.stages):
            yield stage.steps, built.flops(index) * stage.batch_size


def _check_disk(record: PipelineRecord, steps: Sequence[Step], costs: Mapping[str, Cost]) -> None:
    """Raise UserError if the outputs of `steps` do not fit the free space of their disks.

    The bytes that an output already takes are subtracted from its size.
    """
    needed: dict[int, int] = {}
    folders: dict[int, Path] = {}
    for step in steps:
        output = record.places.output(step)
        if is_url(output):
            continue
        path = Path(output).absolute()
        present = sum(file.stat().st_size for file in files_in(path)) if path.exists() else 0
        folder = next(parent for parent in (path, *path.parents) if parent.exists())
        disk = folder.stat().st_dev
        needed[disk] = needed.get(disk, 0) + max(0, costs[step.name].size - present)
        folders.setdefault(disk, folder)
    for disk, size in needed.items():
        if (free := shutil.disk_usage(folders[disk]).free) < size:
            raise UserError(
                f"{folders[disk]} has {free / 1e6:,.0f} MB of free space, but checkpoints and models will take about "
                f"{size / 1e6:,.0f} MB. Free disk space, or use another --run_dir or --training_dir."
            )
