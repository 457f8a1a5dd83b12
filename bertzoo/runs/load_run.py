"""A trained run, ready to compute: its model, its parameters and its tokenizer."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.data.corpus.corpus import Corpus
from bertzoo.data.corpus.entropy import unigram_entropy
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.objectives import PROJECTIONS, MaskedObjective, ReplacedObjective
from bertzoo.runs import phases, prune_layout
from bertzoo.runs.batches import Feed
from bertzoo.runs.kind import kind_of
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.runs.transfer_config import Recipe
from bertzoo.train import sharding, state
from bertzoo.train.metrics import Totals
from bertzoo.train.restore import restore_params
from bertzoo.train.step import make_eval_step


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A run's recipe, directory, objective, parameters (on one device), the step they are of, and its tokenizer.

    The objective and the parameters are without the spare rows of the vocabulary that the run computes with, and of a
    student they are what it is without its teacher.
    """

    recipe: Recipe
    run: RunDirectory
    objective: MaskedObjective | ReplacedObjective
    params: Any
    step: int
    tokenizer: Tokenizer


def load(path: Path | str, which: Literal["latest", "best"] | int = "latest") -> Trained:
    """A run's checkpoint, a pruning's last run's; raises UserError where `path` is no run or has none such."""
    run = RunDirectory(path)
    if run.mirror is None and kind_of(run.config) == "prune":
        try:
            iterations = config.read(run.config)["cut"]["iterations"]
        except KeyError as error:
            raise UserError(f"{run.config} lacks cut.iterations, which every pruning run writes: restore it") from error
        run = RunDirectory(prune_layout.part(run.path, iterations, "tune"))
    run.fetch()
    recipe = run.load()
    padded = phases.of(recipe)[-1].objective
    mesh = sharding.make_mesh(sharding.Mesh(data=1), jax.local_devices()[:1])
    params, step = restore_params(run.checkpoints, state.abstract_params(padded, mesh), which)
    objective = recipe.objective.build(recipe.model, replace(recipe.compute, vocab_multiple=1))
    params = {name: part for name, part in params.items() if name != PROJECTIONS}
    params = jax.tree.map(
        lambda leaf, want: leaf[tuple(slice(size) for size in want.shape)],
        params,
        state.abstract_params(objective, mesh),
    )
    return Trained(recipe=recipe, run=run, objective=objective, params=params, step=step, tokenizer=run.tokenizer())


def heldout(trained: Trained, corpus: Corpus, stage: int) -> tuple[int, dict[str, float]]:
    """The number of held-out rows of a stage's length, and the means of the losses and metrics over all of them."""
    feed = Feed(trained.recipe, corpus, trained.run.plans, lambda warning: None)
    rows = feed.of(stage, "heldout").rows
    step, totals = make_eval_step(trained.objective), Totals()
    for batch in feed.heldout(stage, rows, 1):
        totals.add(step(trained.params, None, jax.tree.map(jax.numpy.asarray, batch)))
    return rows, totals.means()


def measured(trained: Trained, corpus: str | None = None, stage: int | None = None) -> dict[str, Any]:
    """Losses and metrics over all held-out rows of a stage's length (default: the last stage), and what word
    frequencies alone would reach.

    corpus: where the run's corpus is now. Raises UserError where the stage or the corpus is not the run's.
    """
    stages = trained.recipe.stages
    index = len(stages) - 1 if stage is None else stage
    if not 0 <= index < len(stages):
        raise UserError(f"--stage={index}: the stages of this run are numbered 0 to {len(stages) - 1}")
    text = trained.run.open_corpus(corpus)
    rows, means = heldout(trained, text, index)
    unigram = unigram_entropy(text)
    return {
        "step": trained.step,
        "rows": rows,
        "max_length": stages[index].max_length,
        **means,
        "unigram_entropy": unigram.entropy,
        "unigram_cross_entropy": unigram.cross_entropy,
    }


@dataclass(frozen=True, kw_only=True)
class Blank:
    """What the model puts into one blank: tokens and their probabilities, the likeliest first."""

    tokens: tuple[str, ...]
    probabilities: tuple[float, ...]


def fill(trained: Trained, text: str, blank: str, top: int) -> list[Blank]:
    """The `top` likeliest tokens for every `blank` in a text; raises UserError where no blank is or too long a text."""
    tokenizer = trained.tokenizer
    specials = tokenizer.specials
    parts = text.split(blank)
    if len(parts) == 1:
        raise UserError(f"there is no blank to fill in {text!r}: write {blank} where a word is wanted")
    pieces = tokenizer.encode_batch(parts)
    ids, places = [specials.cls], []
    for index, piece in enumerate(pieces):
        if index:
            places.append(len(ids))
            ids.append(specials.mask)
        ids += piece.tolist()
    ids.append(specials.sep)
    longest = trained.recipe.model.max_positions
    if len(ids) > longest:
        raise UserError(f"the text has {len(ids)} tokens, but the model reads at most {longest}; give a shorter one")
    input_ids = np.array([ids], np.int32)
    batch = {
        "input_ids": input_ids,
        "token_type_ids": np.zeros_like(input_ids),
        "attention_mask": np.ones_like(input_ids),
        "masked_positions": np.array([places], np.int32),
    }
    logits_BPV = jax.jit(trained.objective.masked_logits)(trained.params, batch)
    # The table may have spare rows beyond the tokenizer's entries.
    logits_PV = logits_BPV[0, :, : tokenizer.vocab_size]
    values, indices = jax.lax.top_k(jax.nn.softmax(logits_PV), top)
    return [
        Blank(tokens=tuple(tokenizer.token(int(i)) for i in row), probabilities=tuple(float(p) for p in chances))
        for row, chances in zip(np.asarray(indices), np.asarray(values), strict=True)
    ]
