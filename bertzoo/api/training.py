"""Functions that tokenise text and train: tokenize, pretrain, transfer, prune, finetune."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bertzoo.api import models
from bertzoo.api.options import (
    FinetuneOptions,
    PretrainOptions,
    PruneOptions,
    TokenizeOptions,
    TransferOptions,
    config_files,
    execution,
    recipe_of,
)
from bertzoo.core import config as loader
from bertzoo.core import tables
from bertzoo.core.errors import UserError
from bertzoo.core.options import takes
from bertzoo.core.tables import Record
from bertzoo.runs.kinds import PRETRAIN

if TYPE_CHECKING:
    from bertzoo.data.corpus.manifest import Manifest
    from bertzoo.data.settings import Data
    from bertzoo.runs.report import RunRecord


@takes(TokenizeOptions)
def tokenize(options: TokenizeOptions) -> dict[str, Any]:
    """Tokenise text into a corpus, as `bertzoo tokenize` does; return the corpus's manifest.

    overrides: keys of [data], such as `{"data.tokenizer.vocab_size": 8000}`.
    """
    return Record(write_corpus(options).raw)


def write_corpus(options: TokenizeOptions, progress: Callable[[int, int], None] | None = None) -> "Manifest":
    """Tokenise text into a corpus. progress: as in `data.corpus.tokenize.write_corpus`."""
    from bertzoo.data.corpus import tokenize

    return tokenize.write_corpus(data_of(options), options.destination, workers=options.workers, progress=progress)


def data_of(options: TokenizeOptions) -> "Data":
    """Return the [data] settings of a corpus.

    Raises UserError for an option that sets data.source or does not affect a corpus.
    """
    from bertzoo.data.settings import CorpusConfig

    overrides, files = loader.as_options(options.overrides), config_files(options.config)
    for key, value in overrides:
        if key == "data.source":
            raise UserError(
                f"--data.source={value} does not apply: the source is {options.source}. Leave the option out."
            )
        if key.startswith(("data.packing", "data.masking")):
            raise UserError(f"--{key} applies to training, not to the corpus. Give it to `bertzoo pretrain`.")
    cls = PRETRAIN.config() if files else CorpusConfig
    return replace(loader.load(cls, files, overrides).data, source=str(options.source))


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
        lines = self._record().history.heldout
        return dict(lines[-1]) if lines else {}

    def _record(self) -> "RunRecord":
        from bertzoo.runs.report import read_run
        from bertzoo.runs.run_dir import RunDirectory

        run = RunDirectory(self.run_dir)
        run.fetch()
        return read_run(run.path)

    def _repr_html_(self) -> str:
        from bertzoo.runs.report import metric_rows

        return tables.table({"run": self.run_dir, "steps": f"{self.step:,}", "metrics": metric_rows(self._record())})

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

    def _repr_html_(self) -> str:
        kinds = {"median": "median", "lowest": "min", "highest": "max"}
        scores = [
            {
                "split": split,
                "score": name,
                **{head: f"{self.results[kind][split][name]:.2f}" for head, kind in kinds.items()},
            }
            for split, named in self.score.items()
            for name in named
        ]
        return tables.table({"run": self.run_dir, "seeds": len(self.results["seeds"]), "scores": scores})

    def predict(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the predictions of the best seed's model for texts, as `bertzoo.predict` does."""
        return models.predict(self.run_dir, texts)


@takes(PretrainOptions, prints=True)
def pretrain(options: PretrainOptions) -> Run:
    """Pretrain a model, or resume the run, as `bertzoo pretrain` does.

    If `config` has no [model], the run uses the [model] of `from_model`.
    """
    from bertzoo.runs.pretrain import pretrain as train

    step = train(recipe_of(options), options.run_dir, options.from_model, execution(options))
    return Run(options.run_dir, step)


@takes(TransferOptions, prints=True)
def transfer(options: TransferOptions) -> Run:
    """Train a student with a teacher, or resume, as `bertzoo transfer` does."""
    from bertzoo.runs.pretrain import transfer as train

    return Run(options.run_dir, train(recipe_of(options), options.run_dir, options.teacher, execution(options)))


@takes(PruneOptions, prints=True)
def prune(options: PruneOptions) -> Path:
    """Prune a model to a budget (schuBERT), or resume, as `bertzoo prune` does.

    Returns the directory of the pruned model.
    """
    from bertzoo.pruning.run import prune as train

    return train(recipe_of(options), options.run_dir, options.from_model, execution(options)).model.absolute()


@takes(FinetuneOptions, prints=True)
def finetune(options: FinetuneOptions) -> FineTuned:
    """Fine-tune a model on a task over several seeds, or resume, as `bertzoo finetune` does.

    overrides: config keys and values; a shipped config needs at least `task` and `data_dir`.
    """
    from bertzoo.finetuning import run

    results = run.train(recipe_of(options), str(options.run_dir), options.from_model, options.teacher)
    return FineTuned(Path(options.run_dir), results)
