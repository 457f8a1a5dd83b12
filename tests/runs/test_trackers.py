"""Experiment trackers as reporters, by one that stands in for their packages; tests/parity has the packages."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tiny
from messages import mentions

from bertzoo.cli.main import main
from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.runs import trackers
from bertzoo.runs.configs import Pretrain
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.runs.trackers import Tracker

TRAIN = {"step": 3, "stage": 0, "split": "train", "loss": 5.0, "learning_rate": 0.1}


@pytest.fixture
def recipe(tmp_path: Path) -> Pretrain:
    return config.load(Pretrain, [tiny.write_config(tmp_path, "text.txt")], [("run.trackers", '["trackio"]')])


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "run").mkdir()
    return RunDirectory(tmp_path / "run")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of a package that stands in for trackio."""
    seen: list[Any] = []

    def init(project: str, name: str, **options: Any) -> SimpleNamespace:
        seen.append(("init", project, name, options["resume"], options["config"]["seed"]))
        return SimpleNamespace(log=lambda *args, **more: seen.append(("log", args, more)), finish=lambda: 1 / 0)

    module = ModuleType("trackio")
    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", module)
    return seen


def test_a_resumed_run_continues_the_trackers_run(run: RunDirectory, recipe: Pretrain, calls: list[Any]):
    for _ in range(2):
        tracker = Tracker("trackio", run, recipe)
        tracker({"event": "resumed", "step": 2, "stage": 0})
        tracker(TRAIN)
    (first, logged), (second, again) = calls[:2], calls[2:]
    assert first == second and first[1] == "bertzoo" and first[2].startswith("run-") and first[3] == "allow"
    assert logged == again == ("log", ({"train/loss": 5.0, "train/learning_rate": 0.1},), {"step": 3})
    assert json.loads((run.path / "trackers.json").read_text()) == {"trackio": first[2]}


def test_a_tracker_that_fails_is_logged_and_the_run_goes_on(run, recipe, calls, logged, monkeypatch):
    tracker = Tracker("trackio", run, recipe)
    tracker.close()
    assert mentions(logged[-1], "trackio", "division by zero")
    monkeypatch.setattr(sys.modules["trackio"], "init", None)
    with pytest.raises(UserError) as caught:
        Tracker("trackio", run, recipe)
    assert mentions(str(caught.value), "run.trackers", "trackio", "NoneType")


@pytest.mark.parametrize(
    ("installed", "parts"),
    [(False, ("trackio", "pip install", "[trackio]")), (True, ("run.trackers", "trackio"))],
    ids=["missing package", "failed login"],
)
def test_a_tracker_that_cannot_start_raises_before_the_text_is_read(
    installed: bool, parts: tuple[str, ...], tmp_path: Path, calls, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setattr(trackers, "find_spec", lambda name: installed or None)
    monkeypatch.setattr(sys.modules["trackio"], "init", None)
    words = [str(tiny.write_config(tmp_path, "text.txt")), f"--run_dir={tmp_path / 'run'}"]
    assert main(["pretrain", *words, '--run.trackers=["trackio"]']) == 2
    assert mentions(capsys.readouterr().err, *parts)
    assert not (tmp_path / "run").exists()
