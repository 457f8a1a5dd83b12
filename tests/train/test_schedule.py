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


def rates(config: Schedule, steps: int = STEPS) -> np.ndarray:
    return np.asarray(build_schedule(config, PEAK, steps)(STEP))


def bert(step: int) -> float:
    return PEAK * step / WARM if step < WARM else PEAK * (1 - min(step, STEPS) / STEPS)


def electra(step: int) -> float:
    return PEAK * (1 - min(step, STEPS) / STEPS) * min(1.0, step / WARM)


def nvidia(step: int) -> float:
    progress, share = min(step / STEPS, 1), 0.2843
    return PEAK * (progress / share if progress < share else (1 - progress) ** 0.5)


def hugging_face(step: int) -> float:
    return PEAK * (step / WARM if step < WARM else max(0.0, (STEPS - step) / (STEPS - WARM)))


def mobilebert(step: int) -> float:
    end = 1e-4 * PEAK
    return PEAK * step / WARM if step < WARM else (PEAK - end) * (1 - min(step, STEPS) / STEPS) + end


def transferred(step: int) -> float:
    left = max(0.0, 1 - step / STEPS)
    return PEAK * min(0.9 + 0.1 * left**0.5, 10 * step / STEPS)


def wsd(step: int) -> float:
    """Warm-up to step 100, stable to 750, then a quarter of the steps of (1 - t)^2 down to a tenth."""
    left = min(1.0, max(0.0, (STEPS - step) / 250))
    return PEAK * (step / WARM if step < WARM else 0.1 + 0.9 * left**2)


TRANSFERRED = Schedule(kind="polynomial", power=0.5, end_factor=0.9, warmup="least", warmup_share=0.1)


@pytest.mark.parametrize(
    ("config", "formula"),
    [
        (Schedule(warmup_steps=WARM), bert),
        (Schedule(warmup_share=0.1), bert),
        (Schedule(warmup_steps=WARM, warmup="multiply"), electra),
        (Schedule(kind="polynomial", power=0.5, warmup_share=0.2843), nvidia),
        (Schedule(warmup_steps=WARM, decay_from="warmup"), hugging_face),
        (Schedule(warmup_steps=WARM, end_factor=1e-4), mobilebert),
        (TRANSFERRED, transferred),
        (Schedule(kind="wsd", warmup_share=0.1, decay_share=0.25, end_factor=0.1, power=2.0), wsd),
        (Schedule(kind="constant"), lambda step: PEAK),
        (Schedule(kind="constant", warmup_steps=WARM), lambda step: PEAK * min(1.0, step / WARM)),
    ],
)
def test_schedule_is_its_formula(config: Schedule, formula):
    # float32 carries 1 - p to 1e-7 of the peak.
    np.testing.assert_allclose(rates(config), [formula(int(step)) for step in STEP], rtol=1e-5, atol=2e-7 * PEAK)


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


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"warmup_steps": 5, "warmup_share": 0.1}, ("warmup_steps=5", "warmup_share=0.1")),
        ({"power": 0.5}, ("kind", "power=0.5")),
        ({"kind": "constant", "end_factor": 0.1}, ("constant", "end_factor")),
        ({"warmup_share": 1.5}, ("warmup_share=1.5",)),
        ({"warmup_steps": -1}, ("warmup_steps=-1",)),
        ({"end_factor": 2.0}, ("end_factor=2.0",)),
        ({"decay_share": 0.2}, ("decay_share=0.2", "wsd", "linear")),
        ({"kind": "wsd", "decay_share": 0.0}, ("decay_share=0.0",)),
        ({"kind": "wsd", "decay_share": 0.5, "warmup_share": 0.6}, ("decay_share=0.5", "warmup_share=0.6")),
        ({"kind": "wsd", "decay_from": "warmup"}, ("wsd", "decay_from")),
        ({"kind": "wsd", "warmup": "least"}, ("wsd", 'warmup="least"')),
        ({"kind": "polynomial", "power": 0.0}, ("power=0.0",)),
    ],
)
def test_contradictions_name_their_fields(fields, named):
    with pytest.raises(ConfigError, match=mentioning(*named)):
        Schedule(**fields)


def test_warmup_longer_than_the_run_names_both():
    with pytest.raises(ConfigError, match=mentioning("warmup_steps=20", " steps=10")):
        build_schedule(Schedule(warmup_steps=20), PEAK, 10)
    build_schedule(Schedule(kind="wsd", warmup_steps=8), PEAK, 10)
    with pytest.raises(ConfigError, match=mentioning("warmup_steps=9", "decay_share=0.2", " steps=10")):
        build_schedule(Schedule(kind="wsd", warmup_steps=9), PEAK, 10)
