"""Prune a model by several trainings in turn (Khetan and Karnin 2020, Algorithm 1); each training can resume.

Every cut is recorded with the remaining sizes and savings, after a check of the penalty's weight γ.
"""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax

from bertzoo.conversion.pretrained import inherited
from bertzoo.core import atomic, config
from bertzoo.core.errors import ConfigError
from bertzoo.core.kinds import kind_of_run
from bertzoo.core.paths import Location, on_disk, resolve_name
from bertzoo.data.corpus.reader import Corpus
from bertzoo.models import Model
from bertzoo.pruning import layout
from bertzoo.pruning.costs import Cost, Latency, Target, betas
from bertzoo.pruning.layout import format_amount, format_sizes
from bertzoo.pruning.objective import PruneObjective, nested, proximal
from bertzoo.pruning.settings import Prune
from bertzoo.pruning.structure import Structure, cut, declare, fold
from bertzoo.runs import load_model, training, warm_start
from bertzoo.runs.experiments import RunBatches, build_experiment, build_setups
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.runs.warm_start import WarmStart
from bertzoo.train import hosts, sharding, state
from bertzoo.train.checkpoint import restore_params
from bertzoo.train.experiment import Experiment, Stage, StageSetup, total_steps
from bertzoo.train.state import named

_LOG = logging.getLogger(__name__)
FREE = ("run.", "mesh.", "compute.dtype", "compute.remat")  # config keys, or their beginnings, that may change


class InnerRun(NamedTuple):
    """A training run inside a pruning run. first: index of its first stage in `Prune.stages`."""

    run: RunDirectory
    first: int
    stages: tuple[Stage, ...]

    @property
    def finished(self) -> bool:
        """Whether the newest checkpoint is of the last step."""
        return self.run.latest() == total_steps(self.stages)


class PruneDirectory(RunDirectory):
    """The directory of a pruning run, whose checkpoints are in the directories of its training runs."""

    def inner_run(self, recipe: Prune, iteration: int, name: Literal["weigh", "tune"]) -> InnerRun:
        """Return a training run of an iteration, of its prune vectors or after its cut (see `layout.inner_path`)."""
        path, first = layout.inner_path(self.path, iteration, name), (iteration - 1) * (1 + len(recipe.tuning))
        if name == "weigh":
            return InnerRun(RunDirectory(path), first, (recipe.weigh.stage(),))
        return InnerRun(RunDirectory(path), first + 1, recipe.tuning_stages)

    def latest(self) -> int | None:
        """Return the sum of the training runs' newest checkpoint steps, or None without a checkpoint."""
        steps = [step for path in layout.inner_paths(self.path) if (step := RunDirectory(path).latest()) is not None]
        return sum(steps) if steps else None

    def changes(self, recipe: Prune) -> list[str]:
        """Return a line for each key of the config that changed since the run began.

        Raises ConfigError for another kind of run and, after the first checkpoint, for a key that is not in FREE.
        """
        if not self.config.exists():
            return []
        if kind_of_run(self.path) is not layout.PRUNE:
            raise ConfigError(f"{self.name} does not hold a pruning run. Use a different --run_dir.")
        changed = config.difference(config.load(Prune, [self.config]), recipe)
        if self.latest() is not None:
            config.reject(self.name, [line for line in changed if not line.startswith(FREE)])
        return changed


class PruneResult(NamedTuple):
    """The costs of the pruned and the unpruned model, and the budget, in its unit; the pruned model's directory."""

    cost: float
    whole: float
    target: float
    model: Path


def prune(recipe: Prune, run_dir: str | Path, origin: Location | None, options: training.Options) -> PruneResult:
    """Prune a model to its budget (schuBERT, Khetan and Karnin 2020, Algorithm 1), or resume a pruning run.

    origin: the unpruned model; may be None for a resumed run. Raises UserError if config, model and directory do not
    fit together, and Stopped after a signal.
    """
    on_disk(run_dir, "the run directory", "Name a local or mounted directory, and copy it from there.")
    run = PruneDirectory(run_dir)

    def find() -> tuple[str, dict[str, Any] | None, bool]:
        path, record = run.model_path("from", origin, begun=run.latest() is not None)
        return path, record, record is None or resolve_name(path) != record["path"]

    path, record, is_new = hosts.share("the unpruned model", find)
    training.check_apart(path, run, "--from", "Give the pruned model a directory of its own.")
    if is_new:
        training.check_model(path)
    with run.shared():
        for line in hosts.share("the run's config", lambda: run.changes(recipe)):
            _LOG.info(f"changed since the run started: {line}")
        mesh = sharding.make_mesh(recipe.mesh)
        training.prepare(recipe.run, run)
        build_experiment(recipe.scoring_recipe(recipe.model), mesh)  # raises the errors of the mesh early
        tuned = recipe.tuning_recipe(recipe.model)
        built = replace(build_experiment(tuned, mesh), where="tuning.{}".format)
        training.check_experiment(built, tuned.compute)
        pruning = Pruning(recipe, run, path, record, mesh)
        if is_new and record is not None:
            _ = pruning.unpruned  # raises an error if it is another model than the recorded one
        if unfinished := pruning.unfinished:  # a finished run does not open its corpus again: the text may be gone
            tokenizer = pruning.unpruned.tokenizer if run.latest() is None else run.tokenizer()
            corpus = training.open_corpus(recipe, run, tokenizer, options)
            hosts.share("the run directory", lambda: pruning.begin(corpus))
        for iteration in unfinished:
            # 1. Train prune vectors, keep the elements within this iteration's budget, and cut all others.
            inner = run.inner_run(recipe, iteration, "tune").run
            begun = inner.latest() is not None  # its training after the cut
            model, start = (inner.load().model, None) if begun else pruning.cut(iteration, corpus)
            # 2. Train the smaller model.
            pruning.tune(iteration, corpus, model, start)
        # 3. Write the last iteration's model.
        model = pruning.finish()
    structure = structure_of(recipe, model)
    cost = pruning.target.cost(structure)(structure.sizes)
    return PruneResult(cost, pruning.whole, pruning.budget, run.path / layout.MODEL)


@dataclass
class Pruning:
    """A pruning run, which scores, cuts and fine-tunes the model in each of its iterations.

    origin: path of the unpruned model. record: that model's record in run.json; None for a new run.
    """

    recipe: Prune
    run: PruneDirectory
    origin: Location
    record: dict[str, Any] | None
    mesh: jax.sharding.Mesh

    def __post_init__(self):
        self.target, self._table = self.recipe.target, self.run.path / layout.TABLE
        if isinstance(self.target, Latency) and self.run.latest() is not None:
            self.target = replace(self.target, table=str(self._table))
        self.whole, self.budget = budget(self.recipe, self.target)
        self._warned: set[str] = set()  # all iterations read the same text

    @cached_property
    def unpruned(self) -> WarmStart:
        """The unpruned model; raises UserError if it lacks a required head, or if the run began with another model."""
        source = self._read(self.origin, self.recipe.model)
        self.run.check_same_model("from", self.record, source.record)
        return source

    @property
    def unfinished(self) -> list[int]:
        """The numbers of the iterations that are still to run, from 1."""
        iterations = range(1, self.recipe.cut.iterations + 1)
        return [number for number in iterations if not self.run.inner_run(self.recipe, number, "tune").finished]

    def begin(self, corpus: Corpus) -> None:
        record = self.record or self.unpruned.record
        self.run.write_config(self.recipe)
        if isinstance(self.target, Latency) and self.run.latest() is None:
            atomic.write_bytes(self._table, Path(self.target.table).read_bytes())
        origins = {"from": record or {}, "beta": {"unit": self.target.unit}}
        self.run.write_provenance(corpus, origins)

    def tune(self, iteration: int, corpus: Corpus, model: Model, start: WarmStart | None) -> None:
        """Train an iteration's model after the cut; raises the errors of `train.loop.run`."""
        recipe, inner = self.recipe, self.run.inner_run(self.recipe, iteration, "tune")
        tuning = recipe.tuning_recipe(model)
        built = self._build(inner, tuning)
        _LOG.info(f"iteration {iteration} of {recipe.cut.iterations}, fine-tuning")
        self._train_inner(inner, tuning, built, corpus, start, followed=iteration < recipe.cut.iterations)

    def cut(self, iteration: int, corpus: Corpus) -> tuple[Model, WarmStart]:
        """Train an iteration's prune vectors and cut the model; return the smaller model and its initial parameters.

        If an earlier iteration cut enough, return the model uncut.
        """
        if iteration == 1:
            model, source = self.recipe.model, self.unpruned
        else:
            before = self.run.inner_run(self.recipe, iteration - 1, "tune").run
            model = before.load().model
            source = self._read(before.path, model)
        structure = structure_of(self.recipe, model)
        cost, share = self.target.cost(structure), iteration / self.recipe.cut.iterations
        budget = self.whole - share * (self.whole - self.budget)
        params = source.params
        if cost(structure.sizes) <= budget:  # an earlier iteration cut more than necessary
            _LOG.info(
                f"iteration {iteration} of {self.recipe.cut.iterations} cuts nothing, because an earlier one cut enough"
            )
        else:
            unpruned = structure_of(self.recipe, self.recipe.model).sizes
            objective, trained = self._score(iteration, model, structure, cost, source, corpus)
            gates, leaves = objective.gates, named(trained)
            scores = {name: np.asarray(gates.score(leaf)) for name, leaf in leaves.items()}
            indices = self.recipe.choose_kept(structure, cost, scores, budget, unpruned)
            vectors = {name: np.asarray(gates.vector(leaf, None)) for name, leaf in leaves.items()}
            falls = {name: gates.start - score for name, score in scores.items()}
            check_gamma(objective.gamma, objective.betas, vectors, falls, indices)
            costs = {"unit": self.recipe.target.unit, "budget": self.budget, "target": budget}
            rounds = {"iteration": iteration, "iterations": self.recipe.cut.iterations}
            record = cut_record(structure, cost, indices, **rounds, **costs)
            for line in describe(record):
                _LOG.info(line)
            file = layout.cut_file(self.run.path, iteration)
            hosts.share("the record of a cut", lambda: atomic.write_json(file, record))
            generator = {name: array for name, array in params.items() if name.startswith("generator/")}
            encoder = {name: array for name, array in params.items() if name not in generator}
            model, smaller = cut(structure, fold(structure, encoder, vectors), indices)
            params = smaller | generator
        return model, replace(source, params=params)

    def _score(
        self, iteration: int, model: Model, structure: Structure, cost: Cost, source: WarmStart, corpus: Corpus
    ) -> tuple[PruneObjective, Any]:
        """Train the prune vectors of a model; return their objective and the trained vectors."""
        recipe, inner = self.recipe, self.run.inner_run(self.recipe, iteration, "weigh")
        settings = recipe.weigh
        model_objective = recipe.objective.build(model, recipe.compute)
        objective = PruneObjective(model_objective, structure, betas(structure, cost), settings.gamma, settings.gates)

        def rule(rate: Any) -> optax.GradientTransformation:
            if settings.penalty != "proximal":
                return optax.adam(rate)
            return optax.chain(optax.sgd(rate), proximal(rate, objective.gamma, objective.betas))

        if not inner.finished:
            name = f"weighing {', '.join(recipe.letters)}"
            _LOG.info(f"iteration {iteration} of {recipe.cut.iterations}, {name}")
            setup = StageSetup(objective=objective, optimizer=settings.optimizer, rule=rule, name=name)
            scoring = recipe.scoring_recipe(model)
            plain = self._build(inner, scoring)
            frozen = {"frozen": plain.boxed, "frozen_dtype": "float32", "plain": lambda: plain}
            built = replace(plain, setups=[setup], **frozen)
            targets = named(state.abstract_params(model_objective, self.mesh))
            weights = {name: state.put(array, targets[name]) for name, array in source.params.items()}
            start = replace(source, params={}, frozen=nested(weights))
            self._train_inner(inner, scoring, built, corpus, start)
        shapes = state.abstract_params(objective, sharding.one_device())
        return objective, restore_params(inner.run.checkpoints, shapes)[0]

    def _build(self, inner: InnerRun, recipe: Any) -> Experiment:
        """Build a training run, whose messages name the stages as this run's config does."""
        return replace(build_experiment(recipe, self.mesh), where=lambda stage: self.recipe.where(inner.first + stage))

    def _train_inner(
        self,
        inner: InnerRun,
        recipe: Any,
        built: Experiment,
        corpus: Corpus,
        start: WarmStart | None,
        followed: bool = True,
    ) -> None:
        run = inner.run
        hosts.share("the directory of a training run", lambda: run.path.mkdir(parents=True, exist_ok=True))
        batches = RunBatches(recipe, corpus, self.run.plans, first=inner.first, warned=self._warned)
        with ExitStack() as stack:
            trackers = training.start_trackers(recipe, run, stack)
            training.train(recipe, built, batches, run, trackers, start, followed=followed)

    def finish(self) -> Model:
        """Write the pruned model, unless it exists, and a config to train it further; return the model's config."""
        last = self.run.inner_run(self.recipe, self.recipe.cut.iterations, "tune").run
        model, directory = last.load().model, self.run.path / layout.MODEL

        def write() -> None:
            recipe = config.dump(self.recipe.tuning_recipe(model))
            atomic.write_bytes(self.run.path / layout.RECIPE, recipe.encode())
            atomic.remove_leftovers(directory)
            if (directory / load_model.MODEL).is_file():
                return
            tuned = load_model.read_model(last.path)
            trained = {name: value for name, value in tuned.source.items() if name in ("step", "sentence", "language")}
            source = {
                "format": "prune",
                "from": str(self.origin),
                **inherited(self.run.origin("from") or {}),
                **trained,
            }
            with atomic.new_directory(directory) as temporary:
                load_model.write_model(replace(tuned, source=source), temporary)

        hosts.share("the pruned model", write)
        return model

    def _read(self, path: Location, model: Model) -> WarmStart:
        """Read a model's parameters; raises ConfigError if it lacks a module that the run's objective needs."""
        recipe = self.recipe.tuning_recipe(model)
        source = warm_start.read_warm_start(path, recipe)
        shapes = state.shapes_of(build_setups(recipe)[0].objective)
        if missing := sorted(shapes.keys() - source.params.keys()):
            objective = self.recipe.objective
            module = missing[0].split("/")[0]
            raise ConfigError(
                f"{path} has no {module}, which objective.kind = {objective.kind} with objective.sentence = "
                f"{objective.sentence} needs. Use a model that has {module}, or another objective."
            )
        return source


def structure_of(recipe: Prune, model: Model) -> Structure:
    """Return a model's structure with the dimensions that the run cuts; raises ConfigError if the model lacks one."""
    return declare(model, load_model.head_of(recipe), recipe.letters)


def budget(recipe: Prune, target: Target | None = None) -> tuple[float, float]:
    """Return (cost of the unpruned model, budget), both in the target's unit.

    target: computes costs instead of recipe.target; a resumed run passes the target with its copy of the latency table.
    Raises UserError if no cut meets the budget.
    """
    structure = structure_of(recipe, recipe.model)
    recipe.cut.multiples.check(structure)
    cost = (target or recipe.target).cost(structure)
    whole = cost(structure.sizes)
    amount = recipe.target.amount(whole)
    ones = {name: np.ones(size) for name, size in structure.sizes.items()}
    recipe.choose_kept(structure, cost, ones, amount, structure.sizes)
    return whole, amount


Indices = Mapping[str, np.ndarray]  # by dimension, the sorted indices of the kept elements
LEAST_WEIGHT = 0.1  # mean share of |α| that elements to cut must lose, and that elements to keep must retain
LEAST_DIFFERENCE = 0.02  # share by which the scores of kept elements must fall less than those of cut elements


def check_gamma(
    gamma: float,
    betas: Mapping[str, float],
    vectors: Mapping[str, np.ndarray],
    falls: Mapping[str, np.ndarray],
    indices: Indices,
) -> None:
    """Raise ConfigError if γ, the penalty's weight, was too small or too large to separate the elements to cut.

    By dimension: betas: cost of one element; vectors: trained prune vector; falls: initial score minus trained score of
    each element; indices: those of the kept elements.
    """
    weights = np.concatenate([np.full(len(vector), betas[name]) for name, vector in vectors.items()])
    keep = np.concatenate([np.isin(np.arange(len(vector)), indices[name]) for name, vector in vectors.items()])

    def means(values: Mapping[str, np.ndarray]) -> list[float]:
        """Return two β-weighted means of `values`: over the elements to cut and over the elements to keep."""
        flat = np.concatenate([values[name] for name in vectors])
        return [float(np.average(flat[mask], weights=weights[mask])) for mask in (~keep, keep)]

    importance_of_cut, importance_of_kept = means({name: np.abs(vector) for name, vector in vectors.items()})
    if importance_of_cut > 1 - LEAST_WEIGHT:
        raise ConfigError(
            f"weigh.gamma = {gamma:g} is too small: the elements to cut retain {importance_of_cut:.0%} of their "
            "importance on average. Start another run with a larger gamma or more weigh.steps."
        )
    if importance_of_kept < LEAST_WEIGHT:
        raise ConfigError(
            f"weigh.gamma = {gamma:g} is too large: the elements to keep retain only {importance_of_kept:.1%} of their "
            "importance on average. Start another run with a smaller gamma or fewer weigh.steps."
        )
    fall_of_cut, fall_of_kept = means(falls)
    if fall_of_kept > (1 - LEAST_DIFFERENCE) * fall_of_cut:
        raise ConfigError(
            f"weigh.gamma = {gamma:g} does not separate the elements: on average, the scores of elements to keep fell "
            f"by {fall_of_kept:.4g}, and those of elements to cut by {fall_of_cut:.4g}. Start another run with a "
            "smaller gamma."
        )


def cut_record(structure: Structure, cost: Cost, indices: Indices, **more: Any) -> dict[str, Any]:
    """Return the record of a cut: `cost` and `sizes` before and after it, `saved`, and the fields in `more`.

    `saved` is {letter of `structure.LETTERS`: cost saved if only the dimensions of this letter are cut}.
    """
    before, after = structure.sizes, structure.sizes | {name: len(array) for name, array in indices.items()}
    saved = {
        letter: cost(before) - cost(before | {name: after[name] for name in names})
        for letter, names in structure.by_letter.items()
    }
    costs = {"before": cost(before), "after": cost(after)}
    return {**more, "cost": costs, "saved": saved, "sizes": {"before": before, "after": after}}


def describe(cut: Mapping[str, Any]) -> list[str]:
    """Return console lines that describe a cut, from its `cut_record`."""
    unit, cost = cut["unit"], cut["cost"]
    amount = partial(format_amount, whole=cost["before"])
    lines = [
        f"iteration {cut['iteration']} of {cut['iterations']}: {amount(cost['before'])} -> {amount(cost['after'])} "
        f"{unit} (this iteration may keep {amount(cut['target'])}, the last one {amount(cut['budget'])})"
    ]
    for letter, saved in cut["saved"].items():
        before, after = (format_sizes(cut["sizes"][when], letter) for when in ("before", "after"))
        lines.append(f"  {letter}  {before} -> {after} saves {amount(saved)}")
    return lines
