"""Replaced token detection learns: on prose, a discriminator held against word frequencies."""

import functools
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from scipy import stats

from bertzoo.objectives.replaced import corrupt
from bertzoo.runs.experiments import RunBatches
from bertzoo.runs.load_model import LoadedRun, load_run

MARGIN = 0.05
ROWS = 1024  # held-out, or all where there are fewer


def area(scores: np.ndarray, labels: np.ndarray) -> float:
    """The area under the ROC curve, by scipy: the chance that a positive's score is above a negative's."""
    positive, negative = scores[labels > 0], scores[labels == 0]
    return stats.mannwhitneyu(positive, negative).statistic / (len(positive) * len(negative))


def frequencies(trained: LoadedRun) -> np.ndarray:
    """How often each token is in the training text; the special ones that are in every row, far above all."""
    counts = np.zeros(trained.recipe.model.vocab_size)
    for tokens in trained.run.open_corpus().stream("train"):
        counts += np.bincount(tokens, minlength=len(counts))
    counts[[trained.tokenizer.specials.cls, trained.tokenizer.specials.sep]] = counts.sum()
    return counts


def measure(trained: LoadedRun, counts: np.ndarray) -> tuple[float, float, float]:
    """Areas of the discriminator and of word frequencies on the same corrupted rows; the generator's accuracy."""
    objective, params = trained.objective, trained.params
    feed = RunBatches(trained.recipe, trained.run.open_corpus(), trained.run.plans)

    @jax.jit
    def judged(batch):
        masked = objective.masked_logits(params, batch)
        made = corrupt(batch, objective.draw(masked, batch, None))
        right = (masked.argmax(-1) == batch["masked_ids"]) * batch["masked_weights"]
        return made, objective.replaced_logits(params, made), right

    scores, tokens, labels, right, slots = [], [], [], 0.0, 0.0
    for batch in feed.heldout(0, ROWS, 1):
        made, logits, hits = jax.tree.map(np.asarray, judged(jax.tree.map(jax.numpy.asarray, batch)))
        real = (batch["attention_mask"] * batch["row_weight"][:, None]) > 0
        scores, tokens = [*scores, logits[real]], [*tokens, made["input_ids"][real]]
        labels, right, slots = (
            [*labels, made["replaced"][real]],
            right + hits.sum(),
            slots + batch["masked_weights"].sum(),
        )
    judge = functools.partial(area, labels=np.concatenate(labels))
    by_frequency = judge(counts[np.concatenate(tokens)])
    return judge(np.concatenate(scores)), max(by_frequency, 1 - by_frequency), float(right / slots)


@pytest.mark.slow
def test_the_discriminator_beats_word_frequencies_and_the_generator_learns(tmp_path):
    run = tmp_path / "run"
    environment = {
        name: value for name, value in os.environ.items() if name != "XLA_FLAGS"
    }  # programs compiled for tests are slow
    subprocess.run(
        [sys.executable, "-m", "bertzoo", "pretrain", "demo_replaced", f"--run_dir={run}"], env=environment, check=True
    )
    steps = sorted(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdecimal())
    assert len(steps) == 6
    counts = frequencies(load_run(run))
    curve = [measure(load_run(run, step), counts) for step in steps]
    print("\n  step  discriminator AUC  word frequencies' AUC  generator's MLM accuracy")
    for step, (ours, theirs, accuracy) in zip(steps, curve, strict=True):
        print(f"{step:6}  {ours:17.3f}  {theirs:21.3f}  {100 * accuracy:22.1f} %")
    first, last = curve[0], curve[-1]
    assert last[0] > last[1] + MARGIN
    assert last[2] > first[2] + 0.02
