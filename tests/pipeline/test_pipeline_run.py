"""A pipeline from the command line with a fake `bertzoo` for its steps: order, resuming, changes, failures."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import planted
import pytest
import tiny
from messages import mentions
from tiers import quick

from bertzoo.cli import main as cli
from bertzoo.finetuning.sweep import queue, slots
from bertzoo.pipeline import check

STAND_IN = Path(__file__).with_name("stand_in.py")
PIPELINE = """
[inputs]
text = "text.txt"
labels = ""

[stages.base]
verb = "pretrain"
config = "tiny.toml"
options.data.source = "{text}"

[stages.tuned]
verb = "finetune"
config = "tune.toml"
from = "base"
tasks = ["own"]
options.data_dir = "{labels}"

[stages.file]
verb = "convert"
from = "tuned"
tasks = ["own"]
options = { to = "litert", lengths = 16 }

[stages.score]
verb = "evaluate"
from = "file"
tasks = ["own"]

[stages.packed]
verb = "phone"
from = "file"
tasks = ["own"]

[stages.speed]
verb = "benchmark"
models = ["file", "base"]
"""
TUNE = 'task = "own"\nown = { train = "train.csv", dev = "dev.csv" }\nmax_length = 16\nepochs = 1\n'
STEPS = ["base", "tuned/own", "file/own", "score/own", "packed/own", "speed"]
# Runs a pipeline as the command line does, with the stand-in for its steps.
PROGRAM = f"""
from bertzoo.cli import main as cli
from bertzoo.finetuning.sweep import queue, slots
queue.COMMAND = ({str(STAND_IN)!r},)
slots.count_devices = lambda: ("cpu", 1)
cli.entry()
"""


class Place:
    """The working directory, the output of `bertzoo pipeline` in it, and the commands that it started."""

    def __init__(self, capsys: pytest.CaptureFixture):
        self._capsys = capsys
        Path("pipeline.toml").write_text(PIPELINE)
        Path("tune.toml").write_text(TUNE)
        tiny.write_config(Path(), "nowhere")
        tiny.write_text(Path("text.txt"), documents=8)
        Path("labels").mkdir()
        planted.fill(Path("labels"))
        Path("labels", "model").rename("model")
        self.behave({})

    def behave(self, behaviour: dict[str, Any]) -> None:
        """Set the behaviour of later commands whose command line contains a part."""
        Path("behaviour.json").write_text(json.dumps(behaviour))

    def run(self, *options: str, code: int = 0) -> tuple[str, str]:
        """Standard output and error of a pipeline that ends with a code."""
        ended = cli.main(["pipeline", "pipeline.toml", "--run_dir=run", "--inputs.labels=labels", *options])
        captured = self._capsys.readouterr()
        assert ended == code, captured.err
        return captured.out, captured.err

    def calls(self) -> list[str]:
        """The commands started since the last call, as the step that each is of."""
        file = Path("calls")
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        verbs = {"pretrain": 0, "finetune": 1, "convert": 2, "evaluate": 3, "phone": 4, "benchmark": 5}
        return [STEPS[verbs[line.split()[0]]] for line in lines]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(queue, "COMMAND", (str(STAND_IN),))
    monkeypatch.setattr(slots, "count_devices", lambda: ("cpu", 1))
    return Place(capsys)


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
    _, err = place.run(code=1)
    assert mentions(err, "run/stages/file/own.tflite", "missing")


@pytest.mark.parametrize(
    ("file", "step", "parts"),
    [
        ("text.txt", "base", ("base", "the input text", "hash")),
        ("labels/train.csv", "tuned/own", ("tuned/own", "the input labels", "hash")),
        ("run/stages/file/own.tflite", "file/own", ("file/own", "its output", "hash")),
    ],
)
def test_a_changed_input_or_output_of_a_finished_step_is_reported(
    place: Place, file: str, step: str, parts: tuple[str, ...]
) -> None:
    place.run()
    place.calls()
    with open(file, "a") as changed:
        changed.write("more,1,2\n")
    _, err = place.run(code=2)
    assert mentions(err, *parts) and place.calls() == [] and step in recorded()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--finetune.epochs=3"], ("tuned/own", "--epochs=3", "epochs: 1 -> 3")),
        (["--stages.file.lengths=8"], ("file/own", "--lengths=16", "--lengths=8")),
    ],
)
def test_a_changed_option_of_a_finished_step_is_reported(place: Place, options: list[str], parts: tuple) -> None:
    place.run()
    place.calls()
    _, err = place.run(*options, code=2)
    assert mentions(err, *parts) and place.calls() == []


def test_a_changed_default_of_a_config_is_reported(place: Place) -> None:
    place.run()
    Path("tune.toml").write_text(TUNE.replace("epochs = 1", "epochs = 2"))
    _, err = place.run(code=2)
    assert mentions(err, "tuned/own", "epochs: 1 -> 2")


def test_a_removed_output_is_made_again_and_later_steps_stay(place: Place) -> None:
    place.run()
    place.calls()
    Path("run/stages/file/own.tflite").unlink()
    place.run()
    assert place.calls() == ["file/own"]


def test_another_output_of_a_step_that_ran_again_is_reported(place: Place) -> None:
    place.run()
    place.calls()
    Path("run/stages/file/own.tflite").unlink()
    Path("run/stages/speed.json").unlink()
    Path("other.py").write_text(STAND_IN.read_text().replace('f"file of', 'f"another file of'))
    queue.COMMAND = (str(Path("other.py").absolute()),)  # the fixture restores it
    _, err = place.run(code=2)
    # What only reports is made again.
    assert place.calls() == ["file/own", "speed", "score/own"] and mentions(err, "packed/own", "file/own", "hash")


def test_a_step_whose_source_is_made_anew_and_fails_does_not_run_on_the_old_one(place: Place) -> None:
    place.run("--only=base,tuned")
    place.calls()
    shutil.rmtree("run/stages/base")
    place.behave({"pretrain": {"exit": 1, "say": "bertzoo: no"}})
    _, err = place.run(code=1)
    assert place.calls() == ["base"] and mentions(err, "5 of 6")
    assert mentions(Path("run/pipeline.md").read_text(), "tuned/own reads base")


def test_an_input_that_changes_while_its_step_runs_is_reported(place: Place) -> None:
    place.behave({"pretrain": {"append": "text.txt"}})
    _, err = place.run(code=1)
    assert mentions(err, "base", "inputs") and "base" not in recorded()


def test_a_changed_point_of_a_sweep_is_reported(place: Place) -> None:
    grid = '[sweep]\nbase = "tune.toml"\ntasks = ["own"]\n[grid]\noptimizer.learning_rate = [1e-4, 2e-4]\n'
    Path("grid.toml").write_text(grid)
    text = PIPELINE.replace('verb = "finetune"\nconfig = "tune.toml"', 'verb = "sweep"\nconfig = "grid.toml"')
    Path("pipeline.toml").write_text(text)
    place.run("--only=base,tuned")
    Path("grid.toml").write_text(grid.replace("2e-4", "9e-4"))
    _, err = place.run(code=2)
    assert mentions(err, "tuned/own", "points_sha256")


def test_another_pipeline_does_not_take_the_directory(place: Place) -> None:
    place.run("--only=base")
    Path("pipeline.toml").rename("other.toml")
    assert cli.main(["pipeline", "other.toml", "--run_dir=run", "--inputs.labels=labels"]) == 2


def test_a_lost_companion_makes_the_file_anew(place: Place) -> None:
    place.run()
    place.calls()
    Path("run/stages/file/own.tflite.json").unlink()
    place.run()
    assert place.calls() == ["file/own"]


def test_disk_space_that_a_stopped_step_has_taken_counts_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    place.run("--only=base", code=2)
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
    _, err = place.run("--only=tuned", code=2)
    assert mentions(err, "tuned/own", "base") and place.calls() == []
    place.run("--only=base")
    assert place.calls() == ["base"]
    place.run("--from_stage=tuned")
    assert place.calls() == STEPS[1:]
    _, err = place.run("--only=tunde", code=2)
    assert mentions(err, "tunde", "tuned")


def test_training_may_run_elsewhere(place: Place) -> None:
    launcher = Path("launch.sh")
    launcher.write_text(f'#!/bin/sh\necho "$@" > launched\nexec {sys.executable} {STAND_IN} "$@"\n')
    launcher.chmod(0o755)
    out, _ = place.run("--launch=./launch.sh", "--training_dir=shared", "--list")
    assert out.splitlines()[0].startswith("./launch.sh pretrain tiny.toml --run_dir=shared/base")
    place.run("--launch=./launch.sh", "--training_dir=shared")
    assert Path("launched").read_text().startswith("pretrain tiny.toml") and Path("shared/base/model.toml").exists()
    assert place.calls() == STEPS


@pytest.mark.parametrize("step", quick(range(len(STEPS)), 4))
def test_a_stopped_or_killed_pipeline_goes_on(place: Place, step: int) -> None:
    verb = ["pretrain", "finetune", "convert", "evaluate", "phone", "benchmark"][step]
    place.behave({verb: {"wait": True}})
    words = ["pipeline", "pipeline.toml", "--run_dir=run", "--inputs.labels=labels"]
    for number, code in ((signal.SIGTERM, 3), (signal.SIGKILL, -signal.SIGKILL)):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        until(lambda: Path("calls").exists() and Path("calls").read_text().splitlines()[-1].startswith(verb))
        process.send_signal(number)
        assert process.wait(timeout=60) == code
    if verb == "phone":
        Path("run/stages/packed/own").mkdir(parents=True)  # half of its output
    place.calls()
    place.behave({})
    place.run()
    assert place.calls() == STEPS[step:] and list(recorded()) == STEPS


def test_a_launcher_ends_with_a_killed_pipeline(place: Place) -> None:
    launcher = Path("launch.sh")
    launcher.write_text("#!/bin/sh\necho $$ > launched\nexec sleep 60\n")
    launcher.chmod(0o755)
    words = ["pipeline", "pipeline.toml", "--run_dir=run", "--inputs.labels=labels", "--launch=./launch.sh"]
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stderr=subprocess.DEVNULL)
    until(lambda: Path("launched").exists() and Path("launched").read_text().strip())
    process.kill()
    process.wait()
    number = Path("launched").read_text().strip()
    until(lambda: not Path("/proc", number).exists())


def until(happened: Callable[[], Any]) -> None:
    """Wait a minute for something to happen."""
    for _ in range(1200):
        if happened():
            return
        time.sleep(0.05)
    raise AssertionError("it has not happened in a minute")


def test_two_pipelines_do_not_share_a_directory(place: Place) -> None:
    place.behave({"pretrain": {"wait": True}})
    words = ["pipeline", "pipeline.toml", "--run_dir=run", "--inputs.labels=labels"]
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stderr=subprocess.DEVNULL)
    until(Path("calls").exists)
    _, err = place.run(code=2)
    assert mentions(err, "run", "in use")
    process.terminate()
    assert process.wait(timeout=60) == 3


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{", ("pipeline.json", "damaged")),
        ("[]", ("pipeline.json", "damaged")),
        ('{"version": 9, "pipeline": "x", "steps": {}, "hashes": {}}', ("pipeline.json", "version 9", "version 1")),
        ('{"version": 1, "pipeline": "x", "steps": {"base": {}}, "hashes": {}}', ("pipeline.json",)),
    ],
)
def test_a_damaged_record_is_an_error(place: Place, text: str, parts: tuple[str, ...]) -> None:
    Path("run").mkdir()
    Path("run/pipeline.json").write_text(text)
    _, err = place.run(code=2)
    assert mentions(err, *parts) and place.calls() == []


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--inputs.labels="], ("--inputs.labels",)),
        (["--inputs.text=nowhere.txt"], ("base", "nowhere.txt")),
        (["--inputs.labels=nowhere"], ("tuned/own", "nowhere")),
        (["--finetune.epochs=none"], ("tuned/own", "epochs", "none")),
        (["--finetune.max_length=999"], ("tuned/own", "999", "positions")),
        (["--stages.file.precision=int3"], ("file/own", "int3")),
        (["--stages.base.modle.layers=3"], ("base", "modle")),
        (["--stages.bsae.seed=3"], ("bsae",)),
        (["--seed=3"], ("--seed=3",)),
        (["--tasks=rte"], ("rte", "own")),
        (["--finetune.run_dir=x"], ("run_dir",)),
        (["--finetune.alpha=0.5"], ("tuned/own", "alpha", "teacher")),
        (["--launch=./nothing.sh"], ("--launch", "./nothing.sh")),
        (["--training_dir=s3://bucket/x"], ("s3://bucket/x", "gs://")),
        (["--topology=v5e:2x2"], ("--topology", "--plan")),
        (["--list", "--plan"], ("--list", "--plan")),
        (["--only=base", "--from_stage=tuned"], ("--only", "--from_stage")),
    ],
)
def test_everything_is_checked_before_the_first_step(place: Place, options: list[str], parts: tuple[str, ...]) -> None:
    _, err = place.run(*options, code=2)
    assert mentions(err, *parts) and place.calls() == [] and not Path("run").exists()


def test_too_small_a_disk_is_an_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    _, err = place.run(code=2)
    assert mentions(err, "free space") and place.calls() == []


def test_the_plan_has_parameters_steps_and_flops_and_runs_nothing(place: Place) -> None:
    out, _ = place.run("--plan")
    lines = {line.split()[0]: line.split() for line in out.splitlines()}
    recipe_steps = sum(int(line.split("=")[1]) for line in tiny.TOML.splitlines() if line.startswith("steps"))
    assert list(lines)[1:] == STEPS and int(lines["base"][3].replace(",", "")) == recipe_steps
    assert place.calls() == [] and not Path("run").exists()
