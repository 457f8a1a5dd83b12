"""Load the model, parameters and tokenizer of a trained run, and evaluate them on held-out text."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax

from bertzoo.core.errors import UserError
from bertzoo.core.kinds import kind_of_run
from bertzoo.core.paths import missing_model
from bertzoo.data.corpus.entropy import unigram_entropy
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.objectives import PROJECTIONS, MaskedObjective, ReplacedObjective
from bertzoo.runs import experiments
from bertzoo.runs.batches import RunBatches
from bertzoo.runs.configs import Recipe
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train import sharding, state
from bertzoo.train.metrics import Totals
from bertzoo.train.restore import restore_params
from bertzoo.train.step import make_eval_step


@dataclass(frozen=True, kw_only=True)
class LoadedRun:
    """A run with the parameters of one checkpoint, on one device.

    `objective` and `params` include neither padding of the vocabulary nor the teacher of a student.
    """

    recipe: Recipe
    run: RunDirectory
    objective: MaskedObjective | ReplacedObjective
    params: Any
    step: int
    tokenizer: Tokenizer


def load_run(path: Path | str, which: Literal["latest", "best"] | int = "latest") -> LoadedRun:
    """Load a run, or the last of the training runs that it consists of.

    which: the "latest" or the "best" checkpoint, or the step of a checkpoint. Raises UserError if
    there is no such run or checkpoint.
    """
    run = RunDirectory(path)
    if run.bucket is None and (kind := kind_of_run(run.path)):
        if kind.model is not None:
            kind.model_directory(run.path)  # raises for an unfinished run
        run = RunDirectory((kind.parts(run.path) or [run.path])[-1])  # without parts, loading names the kind
    run.fetch()
    if not run.path.exists():
        raise UserError(missing_model(path))
    recipe = run.load()
    padded = experiments.build_setups(recipe)[-1].objective
    mesh = sharding.make_mesh(sharding.Mesh(data=1), jax.local_devices()[:1])
    params, step = restore_params(run.checkpoints, state.abstract_params(padded, mesh), which)
    objective = recipe.objective.build(recipe.model, replace(recipe.compute, vocab_multiple=1))
    params = {name: part for name, part in params.items() if name != PROJECTIONS}
    params = jax.tree.map(
        lambda leaf, want: leaf[tuple(slice(size) for size in want.shape)],
        params,
        state.abstract_params(objective, mesh),
    )
    return LoadedRun(recipe=recipe, run=run, objective=objective, params=params, step=step, tokenizer=run.tokenizer())


def heldout_means(loaded: LoadedRun, corpus: Corpus, stage: int) -> tuple[int, dict[str, float]]:
    """Return the number of held-out rows, and the means of losses and metrics over them.

    stage: index of the training stage whose row length applies.
    """
    batches = RunBatches(loaded.recipe, corpus, loaded.run.plans, lambda warning: None)
    rows = batches.stage(stage, "heldout").rows
    step, totals = make_eval_step(loaded.objective), Totals()
    for batch in batches.heldout(stage, rows, 1):
        totals.add(step(loaded.params, None, jax.tree.map(jax.numpy.asarray, batch)))
    return rows, totals.means()


def evaluate_run(loaded: LoadedRun, corpus: str | None = None, stage: int | None = None) -> dict[str, Any]:
    """Return mean losses (nats) and metrics of all held-out rows, and unigram losses of the held-out text (nats).

    corpus: path or URL of the run's corpus, if it has moved.
    stage: index of the training stage whose row length applies, by default the last.
    Raises UserError if the stage or the corpus does not belong to the run.
    """
    stages = loaded.recipe.stages
    index = len(stages) - 1 if stage is None else stage
    if not 0 <= index < len(stages):
        raise UserError(f"--stage={index} is not a stage of {loaded.run.name}. Use 0 to {len(stages) - 1}.")
    text = loaded.run.open_corpus(corpus)
    rows, means = heldout_means(loaded, text, index)
    unigram = unigram_entropy(text)
    return {
        "step": loaded.step,
        "rows": rows,
        "max_length": stages[index].max_length,
        **means,
        "unigram_entropy": unigram.entropy,
        "unigram_cross_entropy": unigram.cross_entropy,
    }
