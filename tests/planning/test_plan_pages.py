"""docs/plans.md and docs/reproduce.md: computed from counted steps, which are those of today's code."""

import dataclasses
import json

import pytest

from benchmarks.lib import results
from benchmarks.speed import plans
from bertzoo.planning import chips, estimate


@pytest.fixture(scope="module")
def counts() -> plans.Counts:
    return plans.Counts(json.loads((results.DATA / "plans.json").read_text()))


@pytest.mark.parametrize("name", ["demo", pytest.param("electra_small", marks=pytest.mark.slow)])
def test_the_file_has_what_the_code_counts_today(counts: plans.Counts, name: str):
    slice_ = counts.usual(name)
    counted = json.loads(json.dumps(plans.count(plans.recipe_of(name), slice_)))
    kept = counts.steps(name, slice_)
    assert [{key: step[key] for key in counted[0]} for step in kept] == counted, "run speed.plans --again"


def test_every_config_is_counted(counts: plans.Counts):
    for name, slices in plans.wanted():
        assert any(counts.plan(name, slice_) for slice_ in slices), name


def test_a_plan_of_counts_is_the_plan_of_the_command(counts: plans.Counts):
    recipe, slice_ = plans.recipe_of("demo"), counts.usual("demo")
    plan = estimate.plan(recipe, slice_, compile_steps=False)
    planned = plans.Counts({**counts.record, "compiled": []}).plan("demo", slice_)
    stages = [
        dataclasses.replace(one, name=stage.name, advice=stage.advice)
        for one, stage in zip(planned, plan.stages, strict=True)
    ]
    assert stages == list(plan.stages)
    assert estimate.chip_hours(recipe, stages, chips.parse_topology(slice_)) == plan.chip_hours


def test_the_plans_of_published_runs_hold_their_speed(counts: plans.Counts):
    for config, rows, tokens, *_, rate, _ in plans.PUBLISHED:
        (stage,) = counts.plan(plans.label(config, rows, tokens), plans.PUBLISHED_SLICE)
        best, worst = stage.step_seconds
        assert 1 / worst <= rate <= 1 / best, (config, 1 / worst, rate, 1 / best)
        topology = chips.parse_topology(plans.PUBLISHED_SLICE)
        share = rate * stage.model_flops / (topology.chips * topology.chip.flops)
        assert estimate.UTILISATION[0] <= share <= estimate.UTILISATION[1]
    assert estimate.UTILISATION[1] <= 2 * estimate.UTILISATION[0]  # a wider range would hold them too, and say less


def test_pages_state_the_assumptions(counts: plans.Counts, monkeypatch: pytest.MonkeyPatch):
    page = (results.DATA.parent / "plans.md").read_text()
    assert [line for line in page.partition("## Assumptions")[2].splitlines() if line] == [
        f"- {line}" for line in estimate.ASSUMPTIONS
    ]
    before = plans.tables(counts.record)["recipes"][0]["v5e, hours"]
    monkeypatch.setattr(estimate, "UTILISATION", (0.1, 0.2))
    assert plans.tables(counts.record)["recipes"][0]["v5e, hours"] != before
