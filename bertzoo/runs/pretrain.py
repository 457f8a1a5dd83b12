"""Pretrain a model, or train a student on its teacher (MobileBERT, Sun et al. 2020, §3.6), from config to last step."""

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from bertzoo.core import config
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import Location
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.models import Model
from bertzoo.runs import load_model, training, warm_start
from bertzoo.runs.configs import Pretrain, Transfer
from bertzoo.runs.experiments import RunBatches, build_experiment
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.runs.training import AnyRecipe
from bertzoo.runs.warm_start import WarmStart
from bertzoo.train import hosts, sharding
from bertzoo.train.experiment import Experiment

_LOG = logging.getLogger(__name__)


def pretrain(recipe: Pretrain, run_dir: str | Path, origin: Location | None, options: training.Options) -> int:
    """Start or resume a pretraining run, train to the end, and return the number of steps done.

    In a run of several processes, every process calls this function.

    origin: path or URL of the model that a new run starts from; None draws all parameters from the seed. Raises
    UserError if the config does not fit the run, origin, corpus or devices, and Stopped after a signal.
    """
    run = RunDirectory(run_dir)
    if origin is not None:
        training.check_apart(origin, run, "--from", "A run resumes by itself; leave --from out.")
        # Check before creating the directory; a run with a checkpoint does not read its origin again.
        if hosts.share("the newest checkpoint", run.latest) is None:
            training.check_model(origin)
    return _train_run(recipe, run, options, lambda recipe, _: _start(run, recipe, origin), origin)


def transfer(recipe: Transfer, run_dir: str | Path, teacher: Location | None, options: training.Options) -> int:
    """Train a student on its teacher, or resume such a run, and return the number of steps done.

    First the layers' outputs are matched, in one stage for each layer (progressive), in one stage for all (joint), or
    together with the distillation (auxiliary). The stages of the distillation follow. In a run of several processes,
    every process calls this function.

    teacher: path or URL of the teacher. None stands for the teacher in the run.json of a resumed run.
    Raises UserError if the config does not fit the run, teacher, corpus or devices, and Stopped after a signal.
    """
    run = RunDirectory(run_dir)

    def find_teacher() -> tuple[str, dict | None]:
        if begun := run.latest() is not None:
            run.fetch()
        return run.model_path("teacher", teacher, begun)

    path, record = hosts.share("the teacher", find_teacher)
    training.check_apart(path, run, "--teacher", "Give the student a directory of its own.")
    training.check_model(path)

    def read_start(recipe: Transfer, built: Experiment) -> tuple[WarmStart, Tokenizer]:
        """Read the teacher's parameters, which stay fixed, and those outside the layers that the student copies."""
        start = warm_start.read_teacher(path, recipe, built, run.path)
        run.check_same_model("teacher", record, start.record)
        training.check_same_everywhere(start.record["parameters_sha256"], "the teacher's parameters", path)
        for line in start.report if not record else ():
            _LOG.info(line)
        return start, start.tokenizer

    return _train_run(recipe, run, options, read_start)


def _train_run(
    recipe: AnyRecipe,
    run: RunDirectory,
    options: training.Options,
    read_start: Callable[[AnyRecipe, Experiment], tuple[WarmStart | None, Tokenizer | None]],
    origin: Location | None = None,
) -> int:
    """Train a run to the end, and return the number of steps done.

    read_start: reads the parameters and the tokenizer that the run takes from another model. origin: that of a new run.
    """
    with run.shared(), ExitStack() as stack:
        # 1. The devices as a mesh. All processes build it together, as each waits for the others' devices.
        #    Before anything compiles, choose the folder of compiled programs.
        mesh = sharding.make_mesh(recipe.mesh)
        training.prepare(recipe.run, run)
        # 2. The config: choose the microbatches that it leaves open, and check it against the run's own.
        recipe = training.complete(recipe, run, mesh, origin)
        # 3. The model, or student and teacher, and the loss and the optimiser of each stage. In a transfer, a stage of
        #    the layer transfer compares its layers' outputs and attention maps, a distillation compares predictions.
        built = build_experiment(recipe, mesh)
        training.check_experiment(built, recipe.compute, run)
        # 4. The initial parameters, a teacher's parameters and the tokenizer, if another model provides them.
        start, vocabulary = read_start(recipe, built)
        # 5. The trackers, whose login may fail. Then the text: tokenise it unless this was done before, and cut it into
        #    rows.
        trackers = training.start_trackers(recipe, run, stack)
        corpus = training.open_corpus(recipe, run, vocabulary, options)
        batches = RunBatches(recipe, corpus, run.plans)
        # 6. Restore the newest checkpoint or draw the other parameters, and train stage after stage.
        return training.train(recipe, built, batches, run, trackers, start)


def _start(run: RunDirectory, recipe: Pretrain, origin: Location | None) -> tuple[WarmStart | None, Tokenizer | None]:
    """Return the initial parameters and the tokenizer that the run takes from the model `origin`.

    If `origin` is None, both are None. If the run has a checkpoint, the parameters are None.
    """
    if origin is None:
        return None, None
    if hosts.share("the newest checkpoint", run.latest) is not None:
        return None, run.tokenizer()
    start, before = warm_start.read_warm_start(origin, recipe), run.origin("from")
    training.check_same_everywhere(start.record["parameters_sha256"], "the initial parameters", str(origin))
    old, new = (record or {} for record in (before, start.record))
    if before and old["path"] == new["path"] and old["parameters_sha256"] != new["parameters_sha256"]:
        _LOG.info(f"changed since the run started: the parameters in {origin}")
    for line in start.report:
        _LOG.info(line)
    return start, start.tokenizer


def load_recipe(
    files: Iterable[str | Path], overrides: Iterable[tuple[str, str]], origin: Location | None, run_dir: str | Path
) -> Pretrain:
    """Load the config of a pretraining run; if no file has [model], the model at `origin` provides it.

    If the run has a checkpoint, the run's own config provides [model] instead. Raises UserError if the config is
    invalid.
    """
    overrides = list(overrides)

    def model() -> Model:
        if origin is None:
            raise ConfigError(
                "no config describes the model. Add [model] to a config file, set --model.kind, name the model to "
                "start from with --from=MODEL, or give another model's model.toml as one of the configs."
            )
        run = RunDirectory(run_dir)
        if run.latest() is None:
            try:
                return load_model.read_model(origin).model
            except UserError as error:
                raise ConfigError(
                    f"no config has [model], so --from must provide it, but {error} If that model is on another "
                    "machine, add its model.toml as one more config."
                ) from error
        run.fetch()
        return run.load().model

    has_options = any(key.startswith("model.") for key, _ in overrides)
    return config.load(Pretrain, files, overrides, None if origin is None and has_options else {"model": model})
