"""A pruning run (Khetan and Karnin 2020, Algorithm 1): runs one after another, each resumable by itself."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import optax

from bertzoo.core import atomic, config
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import on_disk
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.models import Model
from bertzoo.pruning import ledger
from bertzoo.pruning.budget import budget, devices, structure_of
from bertzoo.pruning.choose import choose
from bertzoo.pruning.costs import Cost, betas
from bertzoo.pruning.objective import PruneObjective, named, nested, proximal
from bertzoo.pruning.rundir import Directory, Part
from bertzoo.pruning.settings import Prune
from bertzoo.pruning.structure import Structure
from bertzoo.pruning.surgery import cut, fold
from bertzoo.runs import any_model, job, phases, prune_layout, teacher, warm_start
from bertzoo.runs.batches import RunBatches
from bertzoo.runs.open_run import Options, check_apart, open_corpus
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.runs.transfer_config import Transfer
from bertzoo.runs.warm_start import WarmStart, pad_vocabulary
from bertzoo.train import hosts, sharding, state
from bertzoo.train.restore import restore_params
from bertzoo.train.stage_setup import StageSetup

GENERATOR = "generator/"
Chosen = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]  # scores -> by dimension what stays


class Pruned(NamedTuple):
    """What a finished pruning came to. left, whole, target: amounts of the budget's unit; model: its directory."""

    left: float
    whole: float
    target: float
    model: Path


def prune(recipe: Prune, run_dir: str | Path, origin: Path | None, options: Options) -> Pruned:
    """Prune a model to its budget, or resume.

    origin: the model that is pruned; may be None for a resumed run. Raises UserError where something does not fit,
    Stopped after a signal.
    """
    on_disk(run_dir, "the run directory", "name a directory, a mounted one perhaps, and copy what is made there")
    run, tell = Directory(run_dir), options.tell_once
    path, digest = hosts.share("what is pruned", lambda: origin_of(origin, run))
    check_apart(Path(path), run, "--from", "give the pruned model a directory of its own")
    if digest is None:
        any_model.check_model(Path(path))
    with run.shared():
        for line in hosts.share("the run's config", lambda: run.changes(recipe)):
            tell(f"changed since the run began: {line}")
        pruning = Pruning(
            recipe=recipe,
            run=run,
            origin=Path(path),
            digest=digest,
            mesh=devices(recipe),
            tell=tell,
            batch_workers=options.batch_workers,
            console=options.console,
        )
        vocabulary = pruning.tokenizer()
        # A finished run does not open its corpus again: the text may be gone.
        model = pruning.train(lambda: open_corpus(recipe, run, vocabulary, options))
    return Pruned(pruning.cost_of(model), pruning.whole, pruning.target, run.model)


@dataclass(kw_only=True)
class Pruning:
    """origin: where the unpruned model is; digest: the hash that its parameters had when the run began."""

    recipe: Prune
    run: Directory
    origin: Path
    digest: str | None
    mesh: jax.sharding.Mesh
    tell: Callable[[str], None]
    batch_workers: int = 0
    console: bool = True
    _said: set[str] = field(default_factory=set)

    def __post_init__(self):
        self.counted = self.run.counted(self.recipe)
        self.whole, self.target = budget(self.recipe, self.counted)

    @cached_property
    def unpruned(self) -> WarmStart:
        """The unpruned model; raises UserError where it is another than the run began with, or lacks a head."""
        found = self._read(self.origin, self.recipe.model)
        self._check(found)
        return found

    def tokenizer(self) -> Tokenizer:
        """What the text is tokenised with."""
        return self.unpruned.tokenizer if self.run.latest() is None else self.run.tokenizer()

    def cost_of(self, model: Model) -> float:
        """What a model costs of what the budget is of."""
        structure = structure_of(self.recipe, model)
        return self.counted.cost(structure)(structure.sizes)

    def train(self, opened: Callable[[], Corpus]) -> Model:
        """Do all that is not done yet, on the corpus that is opened where something is, and write the result; raises as
        the loop does.
        """
        iterations = range(1, self.recipe.cut.iterations + 1)
        left = [number for number in iterations if not self.run.tuning(self.recipe, number).finished]
        if left:
            corpus = opened()
            hosts.share("the run directory", lambda: self._begin(corpus))
            for iteration in left:
                self._iterate(iteration, corpus)
        return self._finish()

    def _begin(self, corpus: Corpus) -> None:
        record = self.unpruned.record if self.digest is None else self.run.origin("from")
        self.run.begin(self.recipe)
        kinds = [f"{device.platform} {device.device_kind}" for device in jax.devices()]
        self.run.write_provenance(kinds, jax.process_count(), corpus, {"from": record or {}})

    def _iterate(self, iteration: int, corpus: Corpus) -> None:
        recipe, part = self.recipe, self.run.tuning(self.recipe, iteration)
        if part.run.latest() is not None:
            model, given = part.run.load().model, None
        else:
            model, given = self._cut(iteration, corpus)
        tuned = recipe.fine_tuning(model)
        self.tell(f"iteration {iteration} of {recipe.cut.iterations}, fine-tuning")
        begun = given
        if isinstance(tuned, Transfer):
            taught = teacher.read_teacher(self.origin, tuned, self.mesh)
            self._check(taught)
            begun = replace(taught, params={} if given is None else given.params)
        self._run(part, tuned, corpus, begun, followed=iteration < recipe.cut.iterations)

    def _cut(self, iteration: int, corpus: Corpus) -> tuple[Model, WarmStart]:
        """The smaller model of an iteration and what its fine-tuning starts with; the vectors are trained first."""
        if iteration == 1:
            model, source = self.recipe.model, self.unpruned
        else:
            before = self.run.tuning(self.recipe, iteration - 1).run
            model = before.load().model
            source = self._read(before.path, model)
        structure = structure_of(self.recipe, model)
        cost, share = self.counted.cost(structure), iteration / self.recipe.cut.iterations
        target = self.whole - share * (self.whole - self.target)
        if cost(structure.sizes) <= target:  # an iteration before has cut more than it had to
            self.tell(f"iteration {iteration} of {self.recipe.cut.iterations} cuts nothing, as one before cut enough")
            kept = {name: np.arange(size) for name, size in structure.sizes.items()}
            cut_params = source.params
        else:
            chosen = self._chosen(structure, cost, target)
            objective, trained = self._weigh(iteration, model, structure, source, corpus, chosen)
            scores, gates = _arrays(objective.scores(trained)), objective.gates
            kept = chosen(scores)
            vectors = _arrays({name: gates.vector(leaf, None) for name, leaf in named(trained).items()})
            fallen = {name: gates.start - score for name, score in scores.items()}
            ledger.check_gamma(self.recipe.weigh.gamma, objective.betas, vectors, fallen, kept)
            self._record(iteration, structure, kept, target, objective, vectors, scores)
            own = {name: array for name, array in source.params.items() if not name.startswith(GENERATOR)}
            model, cut_params = cut(structure, fold(structure, own, vectors), kept)
            cut_params |= {name: array for name, array in source.params.items() if name.startswith(GENERATOR)}
        return model, replace(source, params=self._padded(model, cut_params))

    def _chosen(self, structure: Structure, cost: Cost, target: float) -> Chosen:
        unpruned = structure_of(self.recipe, self.recipe.model).sizes
        return lambda scores: self.recipe.kept(structure, cost, scores, target, unpruned)

    def _weigh(
        self, iteration: int, model: Model, structure: Structure, source: WarmStart, corpus: Corpus, chosen: Chosen
    ) -> tuple[PruneObjective, Any]:
        """The trained vectors of a model; what is `chosen` to stay of it is told on the way."""
        recipe, part = self.recipe, self.run.weighing(self.recipe, iteration)
        weigh, made = recipe.weigh, recipe.weighing(model)
        inner = recipe.objective.build(model, recipe.compute)
        objective = PruneObjective(inner, structure, betas(structure), weigh.gamma, weigh.gates)

        def watch(params: Any) -> dict[str, float]:
            # Of this process's own copy: the others may not be watching.
            own = nested(_arrays(named(params)))
            return ledger.stays(structure, chosen(_arrays(objective.scores(own))))

        if not part.finished:
            self.tell(f"iteration {iteration} of {recipe.cut.iterations}, weighing {', '.join(recipe.letters)}")
            setup = StageSetup(
                objective=objective,
                optimizer=weigh.optimizer,
                rule=lambda rate: _rule(rate, objective, weigh.penalty),
                watch=watch,
                name=f"weighing {', '.join(recipe.letters)}",
            )
            given = replace(source, params={}, frozen=self._placed(inner, self._padded(model, source.params)))
            self._run(part, made, corpus, given, [setup], followed=True)
        mesh = sharding.make_mesh(sharding.Mesh(data=1), jax.local_devices()[:1])
        return objective, restore_params(part.run.checkpoints, state.abstract_params(objective, mesh))[0]

    def _run(
        self,
        part: Part,
        recipe: Any,
        corpus: Corpus,
        given: WarmStart | None,
        made: list[StageSetup] | None = None,
        followed: bool = True,
    ) -> None:
        hosts.share("a directory", lambda: part.run.path.mkdir(parents=True, exist_ok=True))
        feed = RunBatches(recipe, corpus, self.run.plans, self._warn, workers=self.batch_workers, first=part.first)
        job.train(recipe, feed, part.run, self.mesh, given, setups=made, followed=followed, console=self.console)

    def _record(
        self,
        iteration: int,
        structure: Structure,
        kept: ledger.Kept,
        target: float,
        objective: PruneObjective,
        vectors: dict[str, np.ndarray],
        scores: dict[str, np.ndarray],
    ) -> None:
        recipe = self.recipe
        cost = self.counted.cost(structure)
        more: dict[str, Any] = {"unit": recipe.target.unit, "budget": self.target, "target": target}
        if recipe.cut.multiples.given:
            weights = {name: objective.betas[name] * np.abs(vector) for name, vector in vectors.items()}
            more["multiples"] = ledger.price(cost, weights, kept, choose(structure, scores, cost, target))
        places = {"iteration": iteration, "iterations": recipe.cut.iterations}
        found = ledger.entry(structure, cost, kept, **places, **more)
        for line in ledger.lines(found):
            self.tell(line)
        hosts.share("what is cut", lambda: self.run.record(iteration, found))

    def _finish(self) -> Model:
        """Write the model and its config, where they are not yet."""
        last = self.run.tuning(self.recipe, self.recipe.cut.iterations).run
        model = last.load().model

        def write() -> None:
            atomic.write_bytes(
                self.run.path / prune_layout.RECIPE, config.dump(self.recipe.pretraining(model)).encode()
            )
            if (self.run.model / any_model.MODEL).is_file():
                return
            found = any_model.read_model(last.path)
            source: dict[str, str | int] = {"format": "prune", "from": str(self.origin)}
            with atomic.new_directory(self.run.model) as temporary:
                any_model.write_model(replace(found, source=source | _flat(found.source)), temporary)

        hosts.share("the result", write)
        return model

    def _read(self, path: Path, model: Model) -> WarmStart:
        """A model's parameters under the run's objective, without spare rows; raises ConfigError where one is fresh."""
        recipe = self.recipe.pretraining(model)
        plain = replace(recipe, compute=replace(recipe.compute, vocab_multiple=1))
        found = warm_start.read_warm_start(path, plain)
        shapes = state.shapes_of(phases.of(plain)[0].objective)
        if missing := sorted(shapes.keys() - found.params.keys()):
            raise ConfigError(
                f"{path} has no {missing[0].split('/')[0]} trained for this objective, which says what its parts are "
                f"worth: give a model with one, or another objective than {_described(self.recipe)}"
            )
        return found

    def _padded(self, model: Model, params: dict[str, Any]) -> dict[str, np.ndarray]:
        """With the spare rows of the vocabulary that the run computes with."""
        shapes = state.shapes_of(self.recipe.objective.build(model, self.recipe.compute))
        return {name: pad_vocabulary(np.asarray(params[name]), leaf.shape) for name, leaf in shapes.items()}

    def _placed(self, objective: Any, params: dict[str, np.ndarray]) -> Any:
        boxed = state.boxed_shapes(objective)
        places = named(sharding.shardings(boxed, self.mesh, self.recipe.mesh.fallbacks))
        dtypes = {name: leaf.dtype for name, leaf in named(nn.unbox(boxed)).items()}
        return nested(
            {
                name: jax.make_array_from_callback(array.shape, places[name], array.astype(dtypes[name]).__getitem__)
                for name, array in params.items()
            }
        )

    def _check(self, found: WarmStart) -> None:
        if self.digest not in (None, found.record["parameters_sha256"]):
            raise UserError(
                f"the parameters in {self.origin} are not those that {self.run.name} began with: give those again, or "
                "choose another --run_dir"
            )

    def _warn(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self.tell(line)


def origin_of(given: Path | None, run: RunDirectory) -> tuple[str, str | None]:
    """Where the unpruned model is, and the hash of its parameters where the run has begun; raises UserError."""
    record = run.origin("from") if run.latest() is not None else None
    if given is None and record is None:
        raise UserError("--from is missing; name the model that is pruned")
    path = str(given) if given is not None else str(record["path"])  # pyright: ignore[reportOptionalSubscript]
    return path, None if record is None else record["parameters_sha256"]


def _rule(rate: Any, objective: PruneObjective, penalty: str) -> optax.GradientTransformation:
    if penalty != "proximal":
        return optax.adam(rate)
    return optax.chain(optax.sgd(rate), proximal(rate, objective.gamma, objective.betas))


def _arrays(tree: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in tree.items()}


def _flat(source: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in source.items() if name in ("step", "sentence")}


def _described(recipe: Prune) -> str:
    kind, sentence = recipe.objective.kind, recipe.objective.sentence
    return f"objective.kind = {kind} with objective.sentence = {sentence}"
