"""Functions that train: tokenize, pretrain, transfer, prune, finetune."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.api import models
from bertzoo.api.arguments import Config, config_files, location, on_disk, options_of, resolve, speaking


class Run(NamedTuple):
    """A finished training run.

    run_dir: path or URL of the run's directory.
    step: number of steps done.
    """

    run_dir: Path | str
    step: int

    @property
    def metrics(self) -> dict[str, float]:
        """The newest held-out losses and metrics; empty before the first evaluation."""
        from bertzoo.runs.report import read_history
        from bertzoo.runs.run_dir import RunDirectory

        run = RunDirectory(self.run_dir)
        run.fetch()
        lines = read_history(run.metrics).heldout
        return dict(lines[-1]) if lines else {}

    def load(self) -> models.Loaded:
        """Load the model with its newest parameters."""
        return models.load(self.run_dir)


class FineTuned(NamedTuple):
    """A finished fine-tuning run.

    run_dir: path of the run's directory.
    results: content of the run's results.json.
    """

    run_dir: Path
    results: dict[str, Any]

    @property
    def score(self) -> dict[str, dict[str, float]]:
        """The median scores over the seeds, by split and metric, in points."""
        return self.results["median"]

    def predict(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the predictions of the best seed's model for texts, as `bertzoo.predict` does."""
        return models.predict(self.run_dir, texts)


def tokenize(
    source: Path | str,
    destination: Path | str,
    *,
    config: Config = (),
    overrides: Mapping[str, Any] | None = None,
    workers: int = 0,
    runner: str = "",
    runner_options: Sequence[str] = (),
) -> dict[str, Any]:
    """Tokenise text into a corpus, as `bertzoo tokenize` does; return the corpus's manifest.

    source: the text, named as in `data.source`.
    destination: directory or URL of the corpus.
    config: pretraining configs whose [data] applies, as names or files.
    overrides: keys of [data], such as `{"data.tokenizer.vocab_size": 8000}`.
    workers: processes; 0 for one per core.
    runner, runner_options: name of an Apache Beam runner, and its options.
    """
    from bertzoo.core import config as loader
    from bertzoo.core.paths import is_url
    from bertzoo.data.corpus.tokenize import write_corpus
    from bertzoo.data.settings import corpus_settings

    pairs, files = loader.as_options(overrides or {}), config_files(config)
    if files:
        from bertzoo.runs.configs import Pretrain

        data = corpus_settings(str(source), pairs, files, Pretrain)
    else:
        data = corpus_settings(str(source), pairs)
    place = str(destination) if is_url(str(destination)) else on_disk(destination, "destination")
    options = {"workers": workers, "runner": runner, "runner_options": runner_options}
    return write_corpus(data, place, **options).raw


@speaking
def pretrain(
    config: Config,
    *,
    run_dir: Path | str,
    overrides: Mapping[str, Any] | None = None,
    from_model: Path | str | None = None,
    **options: Any,
) -> Run:
    """Pretrain a model, or resume the run, as `bertzoo pretrain` does.

    from_model: path or URL of the model that a new run starts from. If `config` has no [model], the run uses the
    [model] of `from_model`.
    options: `workers` (processes that tokenise, 0 for one per core), `batch_workers` (processes that build batches, 0
    for a thread) and `corpus` (path or URL of a resumed run's corpus, if it has moved).
    """
    from bertzoo.core.config import as_options
    from bertzoo.runs.configs import Pretrain
    from bertzoo.runs.pretrain import load_recipe
    from bertzoo.runs.pretrain import pretrain as train

    settings, origin = options_of("pretrain", options), location(from_model, "from_model")
    if isinstance(config, Pretrain):
        recipe = resolve(Pretrain, config, overrides)
    else:
        recipe = load_recipe(config_files(config), as_options(overrides or {}), origin, run_dir)
    return Run(run_dir, train(recipe, run_dir, origin, settings))


@speaking
def transfer(
    config: Config,
    *,
    run_dir: Path | str,
    teacher: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    stages: tuple[int, int] | None = None,
    **options: Any,
) -> Run:
    """Train a student with a teacher, or resume, as `bertzoo transfer` does.

    teacher: path or URL of a model; may be None for a resumed run.
    stages: (A, B) trains only stages A to B, counted from 1.
    options: as in `pretrain`.
    """
    from bertzoo.runs.configs import Transfer
    from bertzoo.runs.transfer import transfer as train

    recipe, settings = resolve(Transfer, config, overrides), options_of("transfer", options)
    return Run(run_dir, train(recipe, run_dir, location(teacher, "teacher"), stages, settings))


@speaking
def prune(
    config: Config,
    *,
    run_dir: Path | str,
    from_model: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Prune a model to a budget (schuBERT), or resume, as `bertzoo prune` does.

    Returns the directory of the pruned model.

    from_model: the model to prune; may be None for a resumed run.
    options: as in `pretrain`.
    """
    from bertzoo.pruning.run import prune
    from bertzoo.pruning.settings import Prune

    recipe, settings = resolve(Prune, config, overrides), options_of("prune", options)
    return prune(recipe, run_dir, location(from_model, "from_model"), settings).model.absolute()


@speaking
def finetune(
    config: Config = "finetune",
    *,
    run_dir: Path | str,
    from_model: Path | str | None = None,
    teacher: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> FineTuned:
    """Fine-tune a model on a task over several seeds, or resume, as `bertzoo finetune` does.

    overrides: config keys and values; a shipped config needs at least `task` and `data_dir`.
    from_model: the model to fine-tune; may be None for a resumed run.
    teacher: the run directory of a fine-tuned model to distil from.
    """
    from bertzoo.finetuning import run
    from bertzoo.finetuning.settings import Finetune

    recipe = resolve(Finetune, config, overrides)
    models = location(from_model, "from_model"), location(teacher, "teacher")
    return FineTuned(Path(run_dir), run.train(recipe, str(run_dir), *models))
