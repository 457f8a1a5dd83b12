"""What a pipeline rejects before its first step, and its plan."""

from pathlib import Path

import pytest
import tiny
from messages import mentioning, mentions
from place import STEPS, Place

from bertzoo.cli.support import planned_runs
from bertzoo.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{", ("pipeline.json", "damaged")),
        ("[]", ("pipeline.json", "damaged")),
        ('{"version": 9, "pipeline": "x", "steps": {}, "hashes": {}}', ("pipeline.json", "version 9", "reads 1")),
        ('{"version": 1, "pipeline": "x", "steps": {"base": {}}, "hashes": {}}', ("pipeline.json",)),
    ],
)
def test_a_damaged_record_is_an_error(place: Place, text: str, parts: tuple[str, ...]) -> None:
    Path("run").mkdir()
    Path("run/pipeline.json").write_text(text)
    assert mentions(place.run(code=2)[1], *parts) and place.calls() == []


NEW = [f"--finetune.{key}" for key in ("head=embedding", "own.kind=texts", "own.text_b=text2", "model.kind=static")]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--inputs.labels="], ("--inputs.labels",)),
        (["--inputs.text=nowhere.txt"], ("base", "nowhere.txt")),
        (["--inputs.labels=nowhere"], ("tuned/own", "nowhere")),
        (["--finetune.epochs=none"], ("tuned/own", "epochs", "none")),
        (["--finetune.max_length=999"], ("tuned/own", "999", "positions")),
        ([*NEW, "--finetune.model.max_positions=8"], ("tuned/own", "16", "8", "positions")),
        (["--stages.file.precision=int3"], ("file/own", "int3")),
        (["--stages.file.lengths=16,999"], ("file/own", "999", "positions")),
        (["--stages.file.to=onnx", "--stages.file.precision=fp16"], ("file/own", "fp16", "fp32")),
        (["--stages.file.precision=int8-static"], ("file/own", "--calibration=FILE")),
        (["--stages.base.modle.layers=3"], ("base", "modle")),
        (["--stages.bsae.seed=3"], ("bsae",)),
        (["--seed=3"], ("--seed=3",)),
        (["--tasks=rte"], ("rte", "own")),
        (["--finetune.run_dir=x"], ("run_dir",)),
        (["--finetune.alpha=0.5"], ("tuned/own", "alpha", "teacher")),
        (["--launch=./nothing.sh"], ("--launch", "./nothing.sh")),
        (["--training_dir=s3://bucket/x"], ("s3://bucket/x", "gs://")),
        (["--list", "--dry_run"], ("--list", "--dry_run")),
    ],
)
def test_everything_is_checked_before_the_first_step(place: Place, options: list[str], parts: tuple[str, ...]) -> None:
    assert mentions(place.run(*options, code=2)[1], *parts) and place.calls() == [] and not Path("run").exists()


def test_the_options_of_every_point_are_checked(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("text,label\na,1\nb,2\n")
    words = ["finetune", "finetune", "--task=own", f"--data_dir={tmp_path}", "--own.kind=regression", "--from=m"]
    (run,) = planned_runs([*words, f"--run_dir={tmp_path / 'a'}"])
    assert run.task is not None
    with pytest.raises(ConfigError, match=mentioning("calibrate", "regression")):
        planned_runs([*words, f"--run_dir={tmp_path / 'b'}", "--calibrate=true"])


def test_the_plan_has_parameters_steps_and_flops_and_runs_nothing(place: Place) -> None:
    out, _ = place.run("--dry_run")
    lines = {line.split()[0]: line.split() for line in out.splitlines()}
    recipe_steps = sum(int(line.split("=")[1]) for line in tiny.TOML.splitlines() if line.startswith("steps"))
    assert list(lines)[1:] == [*STEPS, "all"] and int(lines["base"][3].replace(",", "")) == recipe_steps
    assert place.calls() == [] and not Path("run").exists()


@pytest.mark.slow  # starts a process
def test_the_pipeline_leaves_accelerators_to_its_steps(place: Place) -> None:
    assert place.start("--dry_run", platform="tpu").wait(timeout=120) == 0  # this machine has no TPU
