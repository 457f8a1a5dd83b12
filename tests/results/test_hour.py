"""`benchmarks learning.hour`: what fits into the budget, and what an entry may contain."""

import itertools
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import write_config, write_text

from benchmarks.learning import hour
from benchmarks.learning.budget_arms import MODELS, MODERN
from benchmarks.lib import program
from bertzoo.runs import load_model, report


def linear(start: float, per_tflop: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a training cost `start` and so many processor seconds for each TFLOP of its steps."""
    costs = itertools.cycle(start + per_tflop * tflops for tflops in hour.TRIALS)
    monkeypatch.setattr(hour, "spend", lambda *_, **__: next(costs))


def test_bert_trains_as_much_in_the_hour_of_any_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "hour").mkdir()
    (tmp_path / "hour" / "tokenise.json").write_text(json.dumps({"corpus": "corpus", "seconds": 65.0}))
    linear(25.0, 10.0, monkeypatch)
    seconds = hour.length(tmp_path, [])
    assert (seconds - 65.0) * (1 - hour.RESERVE) == pytest.approx(25.0 + 10.0 * hour.HOUR)
    half = replace(MODELS[0], share=0.5)  # the seconds are its share already
    assert hour.plan(half, seconds - 65.0, tmp_path, []) == pytest.approx(hour.HOUR)


@pytest.mark.parametrize(("start", "per_tflop"), [(990.0, 60.0), (40.0, -1.0)])
def test_no_training_is_planned_that_does_not_fit(start: float, per_tflop: float, tmp_path: Path, monkeypatch):
    linear(start, per_tflop, monkeypatch)
    with pytest.raises(SystemExit):
        hour.plan(MODELS[0], 1000.0, tmp_path, [])


@pytest.mark.parametrize("name", [arm.name for arm in (*MODELS, *MODERN) if arm.tasks])
def test_an_entry_trains_its_sources_within_the_budget(name: str):
    arms = hour.chain(name)
    assert arms[-1].name == name and not arms[0].source
    assert [arm.source for arm in arms[1:]] == [arm.name for arm in arms[:-1]]
    assert sum(arm.share for arm in arms) == pytest.approx(1)


def test_an_interrupted_training_keeps_what_it_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = iter([0.0, 5.0, 5.0, 12.0])
    outcomes = iter([KeyboardInterrupt(), None])

    def run(*_: str) -> None:
        if (outcome := next(outcomes)) is not None:
            raise outcome

    monkeypatch.setattr(hour, "_children", lambda: next(clock))
    monkeypatch.setattr(program, "bertzoo", run)
    with pytest.raises(KeyboardInterrupt):
        hour.spend(tmp_path / "cost.json", "pretrain")
    assert [hour.spend(tmp_path / "cost.json", "pretrain") for _ in range(2)] == [12.0, 12.0]


def test_a_training_ends_at_the_limit_with_a_checkpoint_of_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hour, "SAVING", 0.0)
    run = tmp_path / "run"
    config = write_config(tmp_path, write_text(tmp_path / "text.txt"), stages=1)
    words = [str(config), f"--run_dir={run}", "--stages.0.steps=100000", "--run.evaluate_every=0"]
    assert hour.spend(tmp_path / "cost.json", "pretrain", *words, limit=20.0) >= 20.0
    opened = report.read_run(run)
    assert [event["event"] for event in opened.history.events][-1] == "stopped"
    assert load_model.read_model(run).parameter_count > 0


def test_a_training_near_its_limit_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cost = tmp_path / "cost.json"
    cost.write_text(json.dumps({"seconds": 95.0, "finished": False}))
    monkeypatch.setattr(program, "stop_after", None)
    assert hour.spend(cost, "pretrain", limit=100.0) == 95.0


def test_a_failed_training_is_not_taken_for_a_stopped_one(tmp_path: Path):
    with pytest.raises(subprocess.CalledProcessError):
        hour.spend(tmp_path / "cost.json", "pretrain", "demo", "--stages.0.steps=-1", limit=20.0)


def test_entries_on_modern_layers_differ_in_model_or_objective():
    assert len({(arm.recipe().model, arm.recipe().objective) for arm in MODERN}) == len(MODERN)
