"""The models of configs/learning: equal training FLOPs, and which scores count as learnt."""

import pytest

from benchmarks.learning import budget_arms
from benchmarks.learning.budget_arms import CHOICES, MODELS, MODERN, TERA, UNTRAINED, flops_by_stage
from benchmarks.learning.budget_results import TASKS, FinishedRun

BUDGET = 300  # TFLOPs of the shipped configs


def tflops(recipe):
    return sum(steps * flops for steps, flops in flops_by_stage(recipe)) / TERA


@pytest.mark.slow  # traces every model
@pytest.mark.parametrize(
    "arm", [arm for arm in (*MODELS, MODERN[0], MODERN[-1]) if arm.share == 1], ids=lambda arm: arm.name
)
def test_a_shipped_config_costs_the_budget(arm):
    assert tflops(arm.recipe()) == pytest.approx(BUDGET, rel=1e-3)


def test_schubert_and_the_bert_it_is_cut_from_share_one_budget():
    arms = {arm.name: arm for arm in MODELS}
    before, pruned = arms["bert_to_prune"], arms["schubert"]
    assert tflops(before.recipe(before.steps(BUDGET))) + tflops(pruned.recipe()) == pytest.approx(BUDGET, rel=1e-3)


@pytest.mark.slow  # traces every choice
@pytest.mark.parametrize("arm", CHOICES, ids=lambda arm: arm.name)
def test_choices_of_training_cost_the_same(arm):
    recipe = arm.recipe(arm.steps(15))
    assert tflops(recipe) == pytest.approx(15, rel=2e-3)
    masked = [stage.masking_share for stage in recipe.stages]
    assert (masked != [0.25, 0.25]) == arm.name.startswith(("choice_mask", "choice_falling"))


def test_untrained_models_take_one_step_without_learning():
    recipe = UNTRAINED[0].recipe(UNTRAINED[0].steps(BUDGET))
    assert recipe.optimizer.learning_rate == 0 and all(stage.steps == 1 for stage in recipe.stages)


def run(least, greatest):
    scores = {task: {"median": {m: least}, "min": {m: least}, "max": {m: greatest}} for task, (_, m) in TASKS.items()}
    counts = {"parameters": 1, "steps": 1, "planned": 1, "flops": 1, "minutes": 0.0}
    return FinishedRun(name="x", title="X", scores=scores, curve=[], end={}, files={}, facts={}, **counts)


def test_learnt_means_above_chance_and_above_every_untrained_seed():
    chances = {"cola": 0.0, "mrpc": 68.4, "stsb": 0.0, "sst2": 50.9}
    assert run(70, 71).above(run(60, 69), chances) == ["CoLA", "MRPC", "STS-B", "SST-2"]
    assert run(60, 71).above(run(50, 59), chances) == ["CoLA", "STS-B", "SST-2"]  # MRPC: below the larger class
    assert run(70, 71).above(run(60, 70), chances) == []  # a seed without pretraining is as good


def test_every_fine_tuned_model_has_a_baseline():
    names = {arm.name for arm in UNTRAINED}
    assert {budget_arms.BASELINE[arm.name] for arm in MODELS if arm.tasks} <= names
