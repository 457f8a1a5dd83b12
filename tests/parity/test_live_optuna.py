"""A sweep whose points a study of Optuna chooses: the points, a resumed study, and ranges."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import comparing
import place
import pytest
from messages import mentions

comparing.needs("optuna")

from bertzoo.cli import main as cli
from bertzoo.jobs import local

SWEEP = '[sweep]\nbase = "base.toml"\ntasks = ["cola"]\n[range]\nalpha = [0.5, 1.0]\nseeds = [1, 9]\n'
SWEEP += '[grid]\nown = ["a", "b"]\n'
WORDS = ("sweep", "sweep.toml", "--from=m", "--teacher=t")


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> place.Place:
    """A place with a sweep of ranges; the stand-in's score falls by 100 times the distance of alpha from 0.9."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "COMMAND", (str(place.STAND_IN),))
    monkeypatch.setattr(local, "count_devices", lambda: ("cpu", 1))
    monkeypatch.setitem(sys.modules, "bertzoo.cli.finetune", place.verb())
    monkeypatch.setitem(cli.VERBS, "finetune", "fine-tune")
    for name, text in (("base.toml", "seeds = 1\n"), ("sweep.toml", SWEEP), ("behaviour.json", "{}")):
        Path(name).write_text(text)
    return place.Place(capsys)


def rows(run: str) -> list[dict[str, Any]]:
    with open(f"{run}/sweep.csv", newline="") as file:
        return [
            {key: row.get(key, "") for key in ("state", "score", "alpha", "own", "run")} for row in csv.DictReader(file)
        ]


def test_an_interrupted_study_chooses_the_points_of_an_undisturbed_one(sweep: place.Place) -> None:
    sweep.run("--run_dir=whole", "--trials=18", words=WORDS)
    whole = rows("whole")
    assert len(sweep.started()) == len(whole) == 18 and {row["own"] for row in whole} == {"a", "b"}
    assert all(0.5 <= float(row["alpha"]) <= 1.0 for row in whole)
    # Ten points are drawn at random; the later ones are nearer to the best.
    distances = [abs(float(row["alpha"]) - 0.9) for row in whole]
    assert sum(distances[10:]) / 8 < sum(distances[:10]) / 10
    sweep.run("--run_dir=parts", "--trials=12", words=WORDS)
    sweep.behave({"--task": {"exit": 1}})  # the next point fails, and the study waits for it
    sweep.run("--run_dir=parts", "--trials=13", words=WORDS, code=1)
    sweep.behave({})
    sweep.started()
    out, _ = sweep.run("--run_dir=parts", "--trials=18", words=WORDS)
    assert len(sweep.started()) == 6 and rows("parts") == whole and "best of cola" in out
    out, err = sweep.run("--run_dir=parts", "--trials=18", words=WORDS)
    assert not sweep.started() and mentions(err, "18 points", "18 already")


def test_a_point_that_is_drawn_again_does_not_run_again(sweep: place.Place) -> None:
    grid = SWEEP.partition("[range]")[0] + "[grid]\nalpha = [0.6, 0.9]\n"
    Path("sweep.toml").write_text(grid)
    sweep.run("--run_dir=r", "--trials=9", "--sampler=random", "--processes=2", words=WORDS)
    assert sorted(row["alpha"] for row in rows("r")) == ["0.6", "0.9"] and len(sweep.started()) == 2
    assert json.loads(Path("r/sweep.json").read_text())["steps"].keys() == {row["run"][7:] for row in rows("r")}


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--trials=2", "--random=2"], ("--random", "--trials")),
        (["--sampler=tpe", "--alpha=1", "--seeds=1"], ("--sampler=tpe", "--trials=N")),
        ([], ("[range]", "alpha", "--trials=N")),
        (["--trials=2", "--own=5", "--optimizer.rate=1"], ("optimizer.rate", "learning_rate")),
    ],
)
def test_wrong_options_raise_before_anything_runs(
    sweep: place.Place, options: list[str], parts: tuple[str, ...]
) -> None:
    _, err = sweep.run("--run_dir=r", *options, words=WORDS, code=2)
    assert mentions(err, *parts) and not sweep.started() and not Path("r").exists()


def test_a_damaged_journal_is_named(sweep: place.Place) -> None:
    sweep.run("--run_dir=r", "--trials=2", words=WORDS)
    Path("r/optuna.log").write_text("{}\n{}\n")
    _, err = sweep.run("--run_dir=r", "--trials=2", words=WORDS, code=2)
    assert mentions(err, "r/optuna.log", "damaged")
