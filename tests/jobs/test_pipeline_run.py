"""A pipeline from the command line with a fake `bertzoo` for its steps: order, resuming, changes, failures."""

import json
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import planted
import pytest
from beginning import write_model
from messages import mentions
from place import PIPELINE, STAND_IN, STEPS, Place, calls, until

from bertzoo.cli import main as cli
from bertzoo.jobs import local, run


def recorded() -> dict[str, Any]:
    return json.loads(Path("run/pipeline.json").read_text())["steps"]


def test_steps_run_in_order_once_and_leave_a_page(place: Place) -> None:
    _, err = place.run()
    assert place.calls() == STEPS and mentions(err, "6 steps", "6/6 speed")
    assert list(recorded()) == STEPS
    page = Path("run/pipeline.md").read_text()
    assert mentions(
        page, "accuracy 81.500", "fp32, 2.50 MB", "1.25 ms", "labels", "bertzoo convert run/stages/tuned/own"
    )
    _, err = place.run()
    assert place.calls() == [] and mentions(err, "6 already finished")


def test_a_failed_step_holds_back_what_reads_it_and_is_tried_again(place: Place) -> None:
    place.behave({"convert": {"exit": 1, "say": "bertzoo: no room"}})
    _, err = place.run(code=1)
    assert place.calls() == ["base", "tuned/own", "file/own"] and mentions(err, "no room", "exit code 1", "4 of 6")
    assert mentions(Path("run/pipeline.md").read_text(), "needs file/own")
    place.behave({})
    place.run()
    assert place.calls() == STEPS[2:]


def test_a_step_without_an_output_has_failed(place: Place) -> None:
    place.behave({"convert": {"silent": True}})
    assert mentions(place.run(code=1)[1], "run/stages/file/own.tflite", "missing")


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ("text.txt", ("base", "the input text", "hash")),
        ("labels/train.csv", ("tuned/own", "the input labels", "hash")),
        ("run/stages/file/own.tflite", ("file/own", "its output", "hash")),
        ("tune.toml", ("tuned/own", "seeds: ", " -> 2")),
        ("--finetune.epochs=3", ("tuned/own", "--epochs=3", "epochs: 1 -> 3")),
        ("--stages.file.lengths=8", ("file/own", "--lengths=16", "--lengths=8")),
    ],
)
def test_a_change_of_a_finished_step_is_reported(finished: Place, changed: str, parts: tuple[str, ...]) -> None:
    if not changed.startswith("--"):
        with open(changed, "a") as file:
            file.write("seeds = 2\n" if changed == "tune.toml" else "more,1,2\n")
    _, err = finished.run(*[changed] * changed.startswith("--"), code=2)
    assert mentions(err, *parts) and finished.calls() == [] and list(recorded()) == STEPS


@pytest.mark.parametrize("name", ["own.tflite", "own.tflite.json"])
def test_a_removed_output_or_companion_is_made_again_and_later_steps_stay(finished: Place, name: str) -> None:
    Path("run/stages/file", name).unlink()
    finished.run()
    assert finished.calls() == ["file/own"]


def test_another_output_of_a_step_that_ran_again_is_reported(finished: Place) -> None:
    Path("run/stages/file/own.tflite").unlink()
    Path("run/stages/speed.json").unlink()
    Path("other.py").write_text(STAND_IN.read_text().replace('f"file of', 'f"another file of'))
    local.COMMAND = (str(Path("other.py").absolute()),)  # the fixture restores it
    _, err = finished.run(code=2)
    # What only reports is made again.
    assert finished.calls() == ["file/own", "score/own", "speed"] and mentions(err, "packed/own", "file/own", "hash")


def test_a_step_whose_source_is_made_anew_and_fails_does_not_run_on_the_old_one(place: Place) -> None:
    place.run("--only=base,tuned")
    place.calls()
    shutil.rmtree("run/stages/base")
    place.behave({"pretrain": {"exit": 1, "say": "bertzoo: no"}})
    _, err = place.run(code=1)
    assert place.calls() == ["base"] and mentions(err, "5 of 6")
    assert mentions(Path("run/pipeline.md").read_text(), "needs base")


def test_no_step_runs_on_a_result_of_a_replaced_one(finished: Place) -> None:
    shutil.rmtree("run/stages/base")
    Path("run/stages/speed.json").unlink()
    Path("run/stages/score/own.json").unlink()
    shutil.rmtree("model")
    write_model(Path("model"), planted.WORDS, np.random.default_rng(1))  # another result of base
    _, err = finished.run(code=2)
    assert finished.calls() == ["base"] and mentions(err, "tuned/own", "the output of base", "hash")
    assert mentions(Path("run/pipeline.md").read_text(), "waiting: tuned/own is finished, but")


def test_an_input_that_changes_while_its_step_runs_is_reported(place: Place) -> None:
    place.behave({"pretrain": {"append": "text.txt"}})
    assert mentions(place.run(code=1)[1], "base", "inputs", "changed") and "base" not in recorded()


def test_a_changed_point_of_a_sweep_is_reported(place: Place) -> None:
    grid = '[sweep]\nbase = "tune.toml"\ntasks = ["own"]\n[grid]\noptimizer.learning_rate = [1e-4, 2e-4]\n'
    Path("grid.toml").write_text(grid)
    text = PIPELINE.replace('verb = "finetune"\nconfig = "tune.toml"', 'verb = "sweep"\nconfig = "grid.toml"')
    Path("pipeline.toml").write_text(text)
    place.run("--only=base,tuned")
    Path("grid.toml").write_text(grid.replace("2e-4", "9e-4"))
    assert mentions(place.run(code=2)[1], "tuned/own", "points_sha256")


def test_another_pipeline_does_not_take_the_directory(place: Place) -> None:
    place.run("--only=base")
    Path("pipeline.toml").rename("other.toml")
    assert cli.main(["pipeline", "other.toml", "--run_dir=run", "--inputs.labels=labels"]) == 2


def test_disk_space_that_a_stopped_step_has_taken_counts_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    assert mentions(place.run("--only=base", code=2)[1], "free space") and place.calls() == []
    Path("run/stages/base").mkdir(parents=True)
    Path("run/pipeline.json").write_text('{"version": 1, "pipeline": "pipeline", "steps": {}, "hashes": {}}')
    with Path("run/stages/base/checkpoint").open("wb") as file:
        file.truncate(10**9)  # sparse; more than base takes
    place.run("--only=base")


def test_a_moved_directory_and_moved_inputs_go_on(place: Place) -> None:
    place.run("--only=base,tuned")
    place.calls()
    Path("labels").rename("elsewhere")
    Path("run").rename("moved")
    code = cli.main(["pipeline", "pipeline.toml", "--run_dir=moved", "--inputs.labels=elsewhere"])
    assert code == 0 and place.calls() == STEPS[2:]


def test_only_some_stages_run(place: Place) -> None:
    assert mentions(place.run("--only=tuned", code=2)[1], "tuned/own", "base") and place.calls() == []
    place.run("--only=base")
    assert place.calls() == ["base"]
    place.run()
    assert place.calls() == STEPS[1:]
    assert mentions(place.run("--only=tunde", code=2)[1], "tunde", "tuned")


def test_training_may_run_elsewhere(place: Place) -> None:
    launcher = Path("launch.sh")
    launcher.write_text(f'#!/bin/sh\necho "$@" > launched\nexec {sys.executable} {STAND_IN} "$@"\n')
    launcher.chmod(0o755)
    out, _ = place.run("--launch=./launch.sh", "--training_dir=shared", "--list")
    assert out.splitlines()[0].startswith("./launch.sh pretrain tiny.toml --run_dir=shared/base")
    place.run("--launch=./launch.sh", "--training_dir=shared")
    assert Path("launched").read_text().startswith("pretrain tiny.toml") and Path("shared/base/model.toml").exists()
    assert place.calls() == STEPS


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_stopped_or_killed_pipeline_goes_on(place: Place, step: int) -> None:
    verb = ["pretrain", "finetune", "convert", "evaluate", "phone", "benchmark"][step]
    place.behave({verb: {"wait": True}})
    for number, code in ((signal.SIGTERM, 3), (signal.SIGKILL, -signal.SIGKILL)):
        process = place.start()
        until(lambda: (lines := calls()) and json.loads(lines[-1])["line"].startswith(verb))
        process.send_signal(number)
        assert process.wait(timeout=60) == code
    if verb == "phone":
        Path("run/stages/packed/own").mkdir(parents=True)  # half of its output
    place.calls()
    place.behave({})
    place.run()
    assert place.calls() == STEPS[step:] and list(recorded()) == STEPS


@pytest.mark.slow
def test_a_launcher_ends_with_a_killed_pipeline(place: Place) -> None:
    launcher = Path("launch.sh")
    launcher.write_text("#!/bin/sh\necho $$ > launched\nexec sleep 60\n")
    launcher.chmod(0o755)
    process = place.start("--launch=./launch.sh")
    number = until(lambda: Path("launched").exists() and Path("launched").read_text().strip())
    process.kill()
    process.wait()
    until(lambda: not Path("/proc", number).exists())
