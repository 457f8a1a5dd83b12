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

import optuna

from bertzoo.cli import main as cli
from bertzoo.core import kinds
from bertzoo.jobs import local

SWEEP = '[sweep]\nbase = "base.toml"\ntasks = ["cola"]\n[range]\nalpha = [0.5, 1.0]\nseeds = [1, 9]\n'
SWEEP += '[grid]\nnotes = ["a", "b"]\n'
WORDS = ("sweep", "sweep.toml", "--from=m", "--teacher=t")


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> place.Place:
    """A place with a sweep of ranges; the stand-in's score falls by 100 times the distance of alpha from 0.9."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "COMMAND", (str(place.STAND_IN),))
    monkeypatch.setattr(local, "count_devices", lambda: ("cpu", 1))
    monkeypatch.setitem(sys.modules, "bertzoo.cli.finetune", place.verb())
    monkeypatch.setitem(kinds.KINDS, "finetune", place.kind())
    monkeypatch.setitem(cli.VERBS, "finetune", "fine-tune")
    for name, text in (("base.toml", "seeds = 1\n"), ("sweep.toml", SWEEP), ("behaviour.json", "{}")):
        Path(name).write_text(text)
    return place.Place(capsys)


def rows(run: str) -> list[dict[str, Any]]:
    with open(f"{run}/sweep.csv", newline="") as file:
        return [
            {key: row.get(key, "") for key in ("state", "score", "alpha", "notes", "run")}
            for row in csv.DictReader(file)
        ]


def trials(run: str) -> list[Any]:
    """The trials of the only study."""
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(f"{run}/optuna.log"))
    (study,) = storage.get_all_studies()
    return storage.get_all_trials(study._study_id)


def test_an_interrupted_study_chooses_the_points_of_an_undisturbed_one(sweep: place.Place) -> None:
    sweep.run("--run_dir=whole", "--trials=18", words=WORDS)
    whole = rows("whole")
    assert len(sweep.started()) == len(whole) == 18 and {row["notes"] for row in whole} == {"a", "b"}
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


@pytest.mark.parametrize("processes", [1, 3])
def test_a_failed_point_that_is_drawn_again_does_not_end_the_study(sweep: place.Place, processes: int) -> None:
    grid = SWEEP.partition("[range]")[0] + "[grid]\nalpha = [0.6, 0.7, 0.8, 0.9, 1.0]\n"
    Path("sweep.toml").write_text(grid)
    sweep.behave({f"--alpha={alpha}": {"exit": 1} for alpha in (0.6, 0.8, 1.0)})
    options = ("--run_dir=r", "--trials=12", f"--processes={processes}")
    sweep.run(*options, words=WORDS, code=1)
    assert len(trials("r")) == 12 and {row["state"] for row in rows("r")} == {"finished", "failed"}
    assert len(sweep.started()) == len(rows("r")) == len({str(trial.params) for trial in trials("r")}) > 3
    sweep.behave({})
    sweep.run(*options, words=WORDS)
    assert len(trials("r")) == 12 and all(trial.value is not None for trial in trials("r"))


def test_another_seed_or_sampler_is_another_study(sweep: place.Place) -> None:
    alphas = []
    for options in ([], ["--random_seed=1"], ["--sampler=random"]):
        _, err = sweep.run("--run_dir=r", "--trials=12", *options, words=WORDS)
        alphas.append({row["alpha"] for row in rows("r")})
        assert mentions(err, "12 points,") and err.count("already finished") == 1
        assert options == ["--sampler=random"] or mentions(err, "0 already", "1/12 cola", "12/12 cola")
    assert not alphas[0] & alphas[1] and alphas[2] not in alphas[:2]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--trials=2", "--random=2"], ("--random", "--trials")),
        (["--sampler=tpe", "--alpha=1", "--seeds=1"], ("--sampler=tpe", "--trials=N")),
        ([], ("[range]", "alpha", "--trials=N")),
        (["--trials=2", "--notes=5", "--optimizer.rate=1"], ("optimizer.rate", "learning_rate")),
    ],
)
def test_wrong_options_raise_before_anything_runs(
    sweep: place.Place, options: list[str], parts: tuple[str, ...]
) -> None:
    _, err = sweep.run("--run_dir=r", *options, words=WORDS, code=2)
    assert mentions(err, *parts) and not sweep.started() and not Path("r").exists()


def test_a_fraction_for_a_whole_number_names_its_range(sweep: place.Place) -> None:
    Path("sweep.toml").write_text(SWEEP.replace("[1, 9]", "[1, 9.0]"))
    _, err = sweep.run("--run_dir=r", "--trials=3", words=WORDS, code=2)
    assert mentions(err, "integer", "range.seeds", "whole numbers") and not sweep.started()


def test_a_damaged_journal_is_named(sweep: place.Place) -> None:
    sweep.run("--run_dir=r", "--trials=2", words=WORDS)
    Path("r/optuna.log").write_text("{}\n{}\n")
    _, err = sweep.run("--run_dir=r", "--trials=2", words=WORDS, code=2)
    assert mentions(err, "r/optuna.log", "damaged")


def test_a_study_learns_which_models_are_over_the_budget(sweep: place.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in measures 0.01 ms a unit. A model is measured once, and trained once if it is within the budget."""
    place.write_search(monkeypatch)
    for run, parts in (("whole", [12]), ("parts", [5, 12])):
        for number in parts:
            sweep.run(f"--run_dir={run}", f"--trials={number}", "--budget_ms=0.4", words=WORDS[:2])
        sizes = {trial.params["model.feed_forward_size"]: trial.state.name for trial in trials(run)}
        assert {*sizes.values()} == {"PRUNED", "COMPLETE"}
        assert "over budget" in Path(run, "sweep.csv").read_text()
        assert all((state == "PRUNED") == (int(size) > 40) and state != "RUNNING" for size, state in sizes.items())
        lines = [call["line"] for call in sweep.started()]
        assert len([line for line in lines if line.startswith("benchmark")]) == len(sizes)
        within = [size for size, state in sizes.items() if state == "COMPLETE"]
        assert sorted(line.partition("size=")[2].split()[0] for line in lines if "pretrain" in line) == sorted(within)
    assert [trial.params for trial in trials("whole")] == [trial.params for trial in trials("parts")]
    assert Path("parts/pareto.csv").read_text() == Path("whole/pareto.csv").read_text().replace("whole/", "parts/")
