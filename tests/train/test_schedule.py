"""Schedules equal the formulas of the code they come from (BERT, ELECTRA, NVIDIA, Hugging Face, MobileBERT)."""

import numpy as np
import pytest
from messages import mentioning

from bertzoo.core.config import load
from bertzoo.core.errors import ConfigError
from bertzoo.runs.configs import Transfer
from bertzoo.train.optim import Schedule, build_schedule

PEAK, STEPS, WARM = 2e-3, 1000, 100
STEP = np.arange(STEPS + 5)
LEFT, WARMING = np.maximum(1 - STEP / STEPS, 0), STEP / WARM
TRANSFERRED = Schedule(kind="polynomial", power=0.5, end_factor=0.9, warmup="least", warmup_share=0.1)
BERT = np.where(STEP < WARM, WARMING, LEFT)
HUGGING_FACE = np.where(STEP < WARM, WARMING, np.maximum(0, (STEPS - STEP) / (STEPS - WARM)))


@pytest.mark.parametrize(
    ("config", "factors"),
    [
        (Schedule(warmup_steps=WARM), BERT),
        (Schedule(warmup_share=0.1), BERT),
        (Schedule(warmup_steps=WARM, warmup="multiply"), LEFT * np.minimum(1, WARMING)),  # ELECTRA
        # NVIDIA
        (Schedule(kind="polynomial", power=0.5, warmup_share=0.2843),
         np.where(STEP < 284.3, STEP / 284.3, LEFT**0.5)),
        (Schedule(warmup_steps=WARM, decay_from="warmup"), HUGGING_FACE),
        # MobileBERT
        (Schedule(warmup_steps=WARM, end_factor=1e-4), np.where(STEP < WARM, WARMING, 1e-4 + (1 - 1e-4) * LEFT)),
        (TRANSFERRED, np.minimum(0.9 + 0.1 * LEFT**0.5, 10 * STEP / STEPS)),
        # Stable from step 100 to 750, then a quarter of the steps of (1 - t)^2 down to a tenth.
        (Schedule(kind="wsd", warmup_share=0.1, decay_share=0.25, end_factor=0.1, power=2.0),
         np.where(STEP < WARM, WARMING, 0.1 + 0.9 * np.minimum(1, 4 * LEFT) ** 2)),
        (Schedule(kind="constant"), np.ones(len(STEP))),
        (Schedule(kind="constant", warmup_steps=WARM), np.minimum(1, WARMING)),
    ],
)  # fmt: skip
def test_schedule_is_its_formula(config: Schedule, factors: np.ndarray):
    # float32 carries 1 - p to 1e-7 of the peak.
    rates = np.asarray(build_schedule(config, PEAK, STEPS)(STEP))
    np.testing.assert_allclose(rates, PEAK * factors, rtol=1e-5, atol=2e-7 * PEAK)


def test_shipped_transfers_use_the_authors_rate_for_every_layer():
    """Thrice 1.5e-3 times their schedule: 4.48e-3 at most for the layer at work, and nine tenths at the end."""
    recipe = load(Transfer, ["mobilebert_transfer"])
    assert len(recipe.layer_groups) == recipe.model.layers == 24
    for index, stage in enumerate(recipe.stages[:24]):
        assert recipe.optimizer_of(index).schedule == TRANSFERRED
        assert (stage.steps, stage.learning_rate) == (10_000, 4.5e-3)
    rate = build_schedule(recipe.optimizer_of(0).schedule, recipe.stages[0].learning_rate, 10_000)
    found = np.asarray(rate(np.arange(10_001)))
    assert found.argmax() == pytest.approx(995, abs=2) and found.max() == pytest.approx(4.48e-3, rel=1e-3)
    assert found[0] == 0 and found[-1] == pytest.approx(4.05e-3)
    assert recipe.optimizer_of(24) == recipe.optimizer and recipe.optimizer.schedule != TRANSFERRED


def test_warmup_longer_than_the_run_names_both():
    with pytest.raises(ConfigError, match=mentioning("warmup_steps=20", " steps=10")):
        build_schedule(Schedule(warmup_steps=20), PEAK, 10)
    build_schedule(Schedule(kind="wsd", warmup_steps=8), PEAK, 10)
    with pytest.raises(ConfigError, match=mentioning("warmup_steps=9", "decay_share=0.2", " steps=10")):
        build_schedule(Schedule(kind="wsd", warmup_steps=9), PEAK, 10)
