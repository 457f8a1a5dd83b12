"""Check every step of a pipeline before the first step starts, and estimate the cost of each."""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from bertzoo.pipeline.record import PipelineRecord, files_in
from bertzoo.pruning.settings import Prune
from bertzoo.runs import load_model
from bertzoo.runs.experiments import build_experiment

Parse = Callable[[Sequence[str]], list[Any]]  # returns a command line's configs, one for each run
_BYTES = 4  # bytes of a parameter
_STATE = 3  # arrays in a checkpoint: the parameters and the optimiser's two moments
# Commands that describe the model that they read: the key that names the model, and the config's table.
_DESCRIBED = {"transfer": ("teacher", "teacher"), "prune": ("from", "model"), "pretrain": ("from", "model")}


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
    checks, costs = _Checks(record, recipes), {}
    for step in record.pipeline.steps:
        with _named(step):
            checks.find_model(step)
            costs[step.name] = _cost(checks.models[step.name], recipes[step.name])
            checks.check_fit(step)
            checks.check_conversion(step, runs=step in steps)
            checks.check_examples(step)
            if step in steps:
                checks.check_data(step)
    _check_disk(record, steps, costs)
    return costs


@contextmanager
def _named(step: Step) -> Iterator[None]:
    """Start the messages of errors with the step's name."""
    try:
        yield
    except UserError as error:
        if error.exit_code != UserError.exit_code:
            raise
        raise ConfigError(f"{step.name}: {error}") from error


class _Checks:
    """Checks of single steps, in the pipeline's order. recipes: the configs of each step's runs."""

    def __init__(self, record: PipelineRecord, recipes: Mapping[str, Sequence[Any]]):
        self.record, self.recipes = record, recipes
        self.models: dict[str, Any] = {}  # by step: config of the model in its output; None if known only later
        self._texts: dict[str, TextModel] = {}  # by step or input: what decides whether its model's file takes texts
        self._read: set[Any] = set()  # data that was checked

    def find_model(self, step: Step) -> None:
        """Find the config of the model that a step's output holds."""
        model, recipe = None, next(iter(self.recipes[step.name]), None)
        if step.verb in ("pretrain", "transfer"):
            model = self.recipes[step.name][0].model
        elif isinstance(recipe, Finetune) and recipe.model is not None:
            model = recipe.model  # a new model, whose words are those of `from`
        elif step.verb != "prune" and "from" in step.links:
            model = self._linked(step, "from")
        self.models[step.name] = model

    def _linked(self, step: Step, key: str) -> Any:
        """Return the config of the model that a step's `key`, such as "from", names; None if unknown.

        Raises UserError if the key names an input that is no model.
        """
        name = step.links.get(key, "")
        if name not in self.record.pipeline.inputs:
            return self.models.get(name)
        path = Path(self.record.pipeline.inputs[name])
        if not is_url(str(path)) and verbs.MODEL in step.form.reads[key]:
            load_model.check_model(path)
        return None

    def check_fit(self, step: Step) -> None:
        """Raise ConfigError if the model that a step reads has other shapes or fewer positions than the step needs."""
        recipes = self.recipes[step.name]
        if step.verb in _DESCRIBED:
            key, table = _DESCRIBED[step.verb]
            if (source := self._linked(step, key)) is not None:
                ours, theirs = (parameter_shapes(m, NoHead()) for m in (getattr(recipes[0], table), source))
                for name in sorted(ours.keys() | theirs.keys()):
                    if ours.get(name) != theirs.get(name):
                        raise ConfigError(
                            f"[{table}] has {name} of shape {ours.get(name)}, but the model of {step.links[key]} has "
                            f"{theirs.get(name)}. Make the two configs agree."
                        )
        if step.form.by_task and (model := self.models[step.name]) is not None:
            for recipe in recipes:
                if recipe.max_length > model.max_positions:
                    raise ConfigError(
                        f"max_length = {recipe.max_length} is more than the model's {model.max_positions} positions. "
                        f"Use at most {model.max_positions}."
                    )

    def check_conversion(self, step: Step, runs: bool) -> None:
        """Raise UserError if a conversion's --lengths or --to do not fit its model. runs: whether the step will run."""
        if step.verb != "convert":
            return
        to, model = step.options.get("to", ""), self.models[step.name]
        if model is not None:
            lengths = [int(length) for length in step.options.get("lengths", "").split(",") if length]
            check_lengths(lengths, model.max_positions)
            if to == "onnx-text":
                check_text_lengths(model, lengths)
        if runs and to in TEXT_FORMATS:
            check_text_model(to, self._text_model(step.name))

    def _text_model(self, name: str) -> TextModel:
        """Return what decides whether a model's file can take texts, as far as known before any step runs.

        name: the step that makes the model, or the input that names it. For an input at a URL, returns the defaults.
        """
        if name not in self._texts:
            if (place := self.record.pipeline.inputs.get(name)) is not None:
                found = TextModel() if is_url(place) else text_model(load_model.read_model(Path(place)))
            else:
                step = self.record.pipeline.step(name)
                recipe = next(iter(self.recipes[name]), None)
                if step.is_training and recipe is not None:
                    found = TextModel(load_model.head_of(recipe), recipe.data.tokenizer)
                else:
                    found = self._text_model(step.links["from"])
                    if recipe is not None:
                        task = resolve_task(recipe)
                        found = TextModel(task.head, found.tokenizer, getattr(task.task, "pair", False))
                    elif step.options.get("head") == "none":
                        found = found._replace(head=NoHead())
            self._texts[name] = found
        return self._texts[name]

    def check_examples(self, step: Step) -> None:
        """Raise ConfigError if a step scores a converted model, but does not name the examples to score it on.

        A converted model, unlike a fine-tuning run, does not record the task's files.
        """
        source = step.links.get("from", "")
        if step.verb != "evaluate" or not source or source in self.record.pipeline.inputs:
            return
        converted = self.record.pipeline.step(source)
        tuned = self.recipes.get(converted.links.get("from", ""), ()) if converted.verb == "convert" else ()
        for task in {recipe.task for recipe in tuned if isinstance(recipe, Finetune)}:
            option = "input" if task == "own" else "data_dir"
            if option not in step.options:
                raise ConfigError(
                    f"{source} is a converted model and does not record the files of the task {task}. Name the files "
                    f"with options.{option} in [stages.{step.stage}]."
                )

    def check_data(self, step: Step) -> None:
        """Raise UserError if a step's text or task files are missing or wrong; skips data that was checked before."""
        record, recipes = self.record, self.recipes[step.name]
        if step.form.by_task:
            for recipe in recipes:
                task = resolve_task(recipe)
                key = (task.name, recipe.data_dir, recipe.own, recipe.squad.heldout)
                if key not in self._read:
                    task.check_files()
                    self._read.add(key)
        elif (step.is_training or step.verb == "tokenize") and recipes:
            data = recipes[0] if step.verb == "tokenize" else recipes[0].data
            outputs = {record.places.output(record.pipeline.step(name)) for name in record.pipeline.needs(step)}
            if data.source not in outputs | self._read and not corpora.is_corpus(data.source):
                pieces.check_sources(data.parts, data.heldout, data.limits)
                self._read.add(data.source)


def _cost(model: Any, recipes: Sequence[Any]) -> Cost:
    if not recipes or (model is None and not isinstance(recipes[0], Prune)):
        return Cost()
    model = recipes[0].model if model is None else model
    parameters = sum(math.prod(shape) for shape in parameter_shapes(model, NoHead()).values())
    copies = 0
    if isinstance(recipes[0], Finetune):
        copies = sum(recipe.seeds for recipe in recipes)
    elif hasattr(recipes[0], "run"):
        run = recipes[0].run
        copies = _STATE * (run.keep_last + bool(run.keep_best) + 1)  # one more while it is written
    return Cost(parameters=parameters, size=_BYTES * parameters * copies)


def stage_flops(recipe: Any) -> Iterator[tuple[int, int]]:
    """Yield (steps, FLOPs of a step) for every stage of training; pruning counts the FLOPs of the unpruned model."""
    parts = [recipe]
    if isinstance(recipe, Prune):
        parts = [recipe.scoring_recipe(recipe.model), recipe.tuning_recipe(recipe.model)] * recipe.cut.iterations
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
