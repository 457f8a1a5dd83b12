"""A sweep from the command line: its table, resuming, failures and stops."""

import json
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import place
import pytest
from messages import mentions
from place import table

from bertzoo.jobs import local


def alphas(calls: list[dict[str, Any]]) -> list[str]:
    words = [dict(word[2:].split("=", 1) for word in call["line"].split()[2:]) for call in calls]
    return [f"{options['task']} {options['alpha']}" for options in words]


ALL = [f"{task} {alpha}" for task in ("cola", "rte") for alpha in ("0.8", "0.9", "1.0")]


def test_every_point_is_run_once_and_the_best_is_named(sweeps) -> None:
    out, err = sweeps.sweep("--from=runs/first", "--teacher=runs/teacher/{task}", "--data_dir=glue")
    calls = sweeps.started()
    assert alphas(calls) == ALL
    assert calls[0]["line"].startswith("finetune base.toml --task=cola --run_dir=runs/s/points/cola/")
    assert "--teacher=runs/teacher/cola" in calls[0]["line"] and "teacher" not in calls[2]["line"]
    lines = table()
    assert [f"{line['task']} {line['alpha']}" for line in lines] == ALL
    assert list(lines[0])[:8] == ["task", "state", "score", "low", "high", "seeds", "collapsed", "chosen_epochs"]
    assert list(lines[0])[-2:] == ["run", "error"] and "optimizer.learning_rate" in lines[0]
    # The stand-in's score is 60 at 0.9 and one point higher with its second seed.
    best = {"state": "finished", "score": "60.5", "low": "60.0", "high": "61.0", "seeds": "2"}
    best |= {"chosen_epochs": "1 2", "dev/matthews": "60.0", "dev/accuracy": ""}
    assert best.items() <= lines[1].items()
    assert float(lines[0]["score"]) == pytest.approx(50.5) and lines[4]["dev/accuracy"] == "60.0"
    run = f"runs/s/{lines[1]['run']}"
    cola, rte = out.splitlines()[-2:]
    assert cola.startswith("best of cola: 60.50") and rte.startswith("best of rte: 60.50")
    assert mentions(cola, "alpha=0.9", "optimizer.learning_rate=1e-05", run) and mentions(rte, "alpha=0.9")
    assert (Path(run) / "results.json").is_file()
    assert len(out.splitlines()) == 2
    assert mentions(err, "6 points", "0 already", "2/6 cola alpha=0.9", "sweep.csv")
    # A sweep is a directory of runs for `bertzoo results`.
    out, _ = sweeps.run(words=("results", "runs/s"))
    assert "| bert | runs/s, from runs/first | 4.0 |" in out
    assert mentions(out, "3 runs") and "| 60.0 (60.0–60.0) |" in out


def test_finished_points_are_not_run_again(sweeps) -> None:
    _, err = sweeps.sweep("--from=m", "--tasks=rte", "--alpha=0.8")
    assert len(sweeps.started()) == 1 and mentions(err, "1 point, 0 already")
    before = table()
    _, err = sweeps.sweep("--from=m", "--tasks=rte")
    assert alphas(sweeps.started()) == ["rte 0.9", "rte 1.0"] and mentions(err, "3 points", "1 already")
    assert table()[0] == before[0]
    # More points in the grid: only those are new.
    text = Path("sweep.toml").read_text().replace("[0.8, 0.9, 1.0]", "[0.5, 0.8, 0.9, 1.0]")
    Path("sweep.toml").write_text(text)
    sweeps.sweep("--from=m", "--tasks=rte")
    assert alphas(sweeps.started()) == ["rte 0.5"]
    out, _ = sweeps.sweep("--from=m", "--tasks=rte")
    assert not sweeps.started() and "best of rte: 60.50" in out and table()[0]["alpha"] == "0.5"


def test_random_points_of_a_sweep(sweeps) -> None:
    sweeps.sweep("--from=m", "--random=1", "--random_seed=3")
    first = sweeps.started()
    assert [name.split()[0] for name in alphas(first)] == ["cola", "rte"] and len(table()) == 2
    sweeps.sweep("--from=m", "--random=2", "--random_seed=3")
    second = sweeps.started()
    assert len(second) == 2 and len(table()) == 4 and not set(alphas(first)) & set(alphas(second))


def test_a_failing_point_is_reported_and_the_others_continue(sweeps) -> None:
    traceback = {"say": "Traceback\nbertzoo: no memory for it\n\n"}
    sweeps.behave({"cola --run_dir": traceback, "alpha=0.9": {"exit": 1}, "alpha=1.0": {"exit": -9}})
    out, err = sweeps.sweep("--from=m", "--tasks=cola", code=1)
    assert alphas(sweeps.started()) == ALL[:3]
    lines = table()
    assert [line["state"] for line in lines] == ["finished", "failed", "failed"]
    assert all(line["error"].startswith("no memory for it") for line in lines[1:])
    assert mentions(lines[1]["error"], "exit code 1", "runs/s/logs/cola/", ".log") and "SIGKILL" in lines[2]["error"]
    assert mentions(err, f"failed: {lines[1]['error']}", "2 of 3", "failed") and "best of cola: 50.50" in out
    # They are retried, and their errors are cleared. On a tie the first point is the best.
    sweeps.behave({"alpha=0.9": {"exit": 1}})
    out, _ = sweeps.sweep("--from=m", "--tasks=cola", code=1)
    first, failed, last = table()
    assert alphas(sweeps.started()) == ALL[1:3] and failed["error"] and first["error"] == last["error"] == ""
    assert first["score"] == last["score"] and mentions(out.splitlines()[-1], "best of cola: 50.50", first["run"])


def test_results_that_are_missing_or_damaged_are_failures(sweeps) -> None:
    sweeps.behave({"alpha=0.8": {"silent": True}, "alpha=0.9": {"damaged": True}})
    sweeps.sweep("--from=m", "--tasks=cola", code=1)
    missing, damaged, fine = table()
    assert mentions(missing["error"], "no results", "runs/s/logs/cola/")
    assert mentions(damaged["error"], "results.json", "damaged") and fine["state"] == "finished"
    sweeps.started()
    sweeps.behave({})
    sweeps.sweep("--from=m", "--tasks=cola")
    assert alphas(sweeps.started()) == ALL[:2]


def test_a_run_that_asks_to_be_run_again_makes_the_sweep_ask(sweeps) -> None:
    sweeps.behave({"alpha=0.8": {"exit": 3, "say": "stopped"}, "alpha=0.9": {"exit": 1}})
    _, err = sweeps.sweep("--from=m", "--tasks=cola", code=3)
    assert [line["state"] for line in table()] == ["stopped", "failed", "finished"]
    assert mentions(err, "1 of 3", "stopped")


def test_runs_side_by_side_have_a_device_each(sweeps, monkeypatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(local, "count_devices", lambda: ("gpu", 2))
    sweeps.behave({"--task": {"together": 2}})  # none ends before two are at work
    _, err = sweeps.sweep("--from=m", "--tasks=cola")
    calls = sweeps.started()
    assert mentions(err, "3 points", "0 already", "2 side") and len(calls) == 3
    assert {call["devices"]["CUDA_VISIBLE_DEVICES"] for call in calls[:2]} == {"0", "1"}
    assert [line["state"] for line in table()] == ["finished"] * 3


def test_flags_set_the_cores_and_the_memory_of_runs(sweeps, monkeypatch) -> None:
    run, given = local.run_processes, []
    monkeypatch.setattr(local, "run_processes", lambda *arguments: given.append(arguments[4:]) or run(*arguments))
    monkeypatch.setattr(local, "machine_memory", lambda: (4e9, 4e9))
    sweeps.sweep("--from=m", "--tasks=cola", "--cores=1", "--memory=2.5")
    sweeps.sweep("--from=m", "--tasks=rte")
    (memory, cores), (estimated, none) = given
    assert {*memory.values()} == {2_500_000_000} and cores == 1 and len(memory) == 3
    assert none is None and min(estimated.values()) > 1e9  # no model is known: a process


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_runs_and_the_same_command_resumes(sweeps, number: signal.Signals) -> None:
    sweeps.behave({"alpha=0.9": {"wait": True}, "alpha=1.0": {"wait": True}})
    with place.started_sweep("--tasks=cola", "--processes=2") as process:
        pids = place.wait_for_runs(3)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert mentions(err, "stopped", "1 of 3") and not out
    assert all(map(place.gone, pids)) and [line["state"] for line in table()] == ["finished", "stopped", "stopped"]
    sweeps.started()
    sweeps.behave({})
    sweeps.sweep("--from=m", "--tasks=cola")
    assert alphas(sweeps.started()) == ["cola 0.9", "cola 1.0"]


@pytest.mark.slow
def test_a_second_interrupt_kills(sweeps) -> None:
    sweeps.behave({"alpha=0.8": {"wait": True, "stubborn": True}})
    with place.started_sweep() as process:
        pids = place.wait_for_runs(1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None and not place.gone(pids[0])  # it waits for the save in progress
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 3 and place.gone(pids[0]) and len(sweeps.started()) == 1


def test_two_sweeps_do_not_share_a_directory(sweeps) -> None:
    sweeps.behave({"--task": {"wait": True}})
    with place.started_sweep() as process:
        place.wait_for_runs(1)
        _, err = sweeps.sweep("--from=m", code=2)
        process.terminate()
        process.communicate(timeout=60)
    assert mentions(err, "runs/s", "in use")


def test_other_options_for_the_same_directory_raise(sweeps) -> None:
    sweeps.sweep("--from=m", "--tasks=rte")
    sweeps.started()
    _, err = sweeps.sweep("--from=other", "--tasks=rte", code=2)
    assert mentions(err, "runs/s", "options.from", "'m'", "->", "'other'")
    Path("base.toml").write_text("seeds = 2\n")
    assert "base_sha256" in sweeps.sweep("--from=m", "--tasks=rte", code=2)[1] and not sweeps.started()
    Path("runs/s/sweep.json").write_text("{")
    assert mentions(sweeps.sweep("--from=m", code=2)[1], "runs/s/sweep.json", "damaged")
    Path("runs/s/sweep.json").unlink()
    assert mentions(sweeps.sweep("--from=m", code=2)[1], "runs/s", "no sweep.json")


def test_the_commands_can_be_listed(sweeps) -> None:
    out, _ = sweeps.sweep("--from=my model", "--list")
    lines = [shlex.split(line) for line in out.splitlines()]
    assert len(lines) == 6 and not sweeps.started() and not Path("runs").exists()
    assert lines[0][:4] == ["bertzoo", "finetune", "base.toml", "--task=cola"] and "--from=my model" in lines[0]
    assert len({line[4] for line in lines}) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--alhpa=1"], ("--alhpa", "--alpha")),
        (["--alpha=much"], ("alpha", "--alpha=much", "'much'")),
        (["--optimizer.rate=1"], ("optimizer.rate", "learning_rate")),
        (["--tasks.cola.seeds=x"], ("--seeds=x", "integer")),
        (["--from"], ("--from", "value")),
        (["--random=0"], ("--random=0", " 1")),
        (["--random_seed=0", "--list"], ("--random_seed=0", "--random=N")),
        (["--processes=two"], ("--processes=two", " 1")),
        (["--tasks=sst2"], ("cola", "rte", "--tasks", "sst2")),
        (["--run_dir=gs://bucket/x"], ("gs://bucket/x", "URL")),
        (["--tasks.rte.from=nowhere"], ("nowhere", "directory")),
        (["--run_dir=base.toml"], ("--run_dir=base.toml", "file")),
        (["--cores=2048", "--processes=3"], ("--cores=2048", "3 processes")),
        (["--cores=4096", "--dry_run"], ("--cores=4096",)),
        (["--memory=1e6"], ("--memory=1e+06", "GB")),
        (["--memory=1e6", "--dry_run"], ("--memory=1e+06", "GB")),
    ],
)
def test_wrong_options_raise_before_anything_runs(sweeps, options: list[str], message: tuple[object, ...]) -> None:
    _, err = sweeps.sweep(*options, code=2)
    assert mentions(err, *message) and err.count("\n") == 1 and not sweeps.started() and not Path("runs").exists()


def test_wrong_files_raise(sweeps) -> None:
    assert mentions(sweeps.sweep(config="nothing", code=2)[1], "nothing ", "shipped")
    Path("sweep.toml").write_text('[sweep]\nbase = "none.toml"\ntasks = ["cola"]\n')
    assert mentions(sweeps.sweep(code=2)[1], "none.toml")
    Path("sweep.toml").write_text('[sweep]\nbase = "base.toml"\ntasks = ["cola"]\n[grid]\nepoch = [1]\n')
    assert mentions(sweeps.sweep(code=2)[1], "unknown", "--epoch") and not Path("runs").exists()


def test_a_sweep_of_the_first_format_goes_on(sweeps) -> None:
    """Its sweep.json lacks the finished points, which are those with results."""
    sweeps.behave({"alpha=0.9": {"exit": 1}})
    sweeps.sweep("--from=m", "--tasks=cola", code=1)
    document = json.loads(Path("runs/s/sweep.json").read_text())
    first = {key: document[key] for key in ("version", "base", "base_sha256", "options")}
    Path("runs/s/sweep.json").write_text(json.dumps(first))
    sweeps.started()
    sweeps.behave({})
    sweeps.sweep("--from=m", "--tasks=cola")
    assert alphas(sweeps.started()) == ["cola 0.9"]
    assert json.loads(Path("runs/s/sweep.json").read_text()).keys() == document.keys() == {*first, "steps", "hashes"}


def test_changed_data_of_finished_points_is_an_error(sweeps) -> None:
    Path("glue").mkdir()
    Path("glue/train.tsv").write_text("one")
    sweeps.sweep("--from=m", "--tasks=cola", "--data_dir=glue")
    sweeps.started()
    Path("glue/train.tsv").write_text("others")
    _, err = sweeps.sweep("--from=m", "--tasks=cola", "--data_dir=glue", code=2)
    assert mentions(err, "cola/", "the input data_dir", "hash") and not sweeps.started()
    Path("glue/train.tsv").unlink()  # removed data counts as unchanged
    sweeps.sweep("--from=m", "--tasks=cola", "--data_dir=glue")
    assert not sweeps.started()
