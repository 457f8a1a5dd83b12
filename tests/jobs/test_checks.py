"""What a pipeline rejects before its first step, and its plan."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import tiny
from messages import mentioning, mentions
from place import PIPELINE, STEPS, Place
from tiers import quick

from bertzoo.core.errors import UserError
from bertzoo.jobs import check
from bertzoo.models import ConvBert


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
    _, err = place.run(code=2)
    assert mentions(err, *parts) and place.calls() == []


NEW = [
    f"--finetune.{option}" for option in ("head=embedding", "own.kind=texts", "own.text_b=text2", "model.kind=static")
]


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
        (["--stages.file.to=mediapipe", "--pretrain.data.tokenizer.lowercase=false"], ("file/own", "upper case")),
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
    _, err = place.run(*options, code=2)
    assert mentions(err, *parts) and place.calls() == [] and not Path("run").exists()


@pytest.mark.parametrize("to", quick(["mediapipe", "onnx-text"], "mediapipe"))
def test_a_file_that_takes_texts_needs_a_fitting_head(place: Place, to: str) -> None:
    """The head of an input or a pretraining run is masked; --head=none leaves an embedder."""
    file = f'[stages.file]\nverb = "convert"\noptions.to = "{to}"\nfrom = '
    for head, name in ((PIPELINE.partition("[stages.tuned]")[0], "base"), ('[inputs]\nlabels = ""\n', "labels")):
        Path("pipeline.toml").write_text(f'{head}{file}"{name}"\n')
        _, err = place.run("--dry_run", "--inputs.labels=model", code=2)
        assert mentions(err, "file", f"--to={to}", "masked")
        place.run("--dry_run", "--inputs.labels=model", "--stages.file.head=none")


@pytest.mark.parametrize(("option", "part"), [("text_b=other", "pairs"), ("kind=regression", "number")])
def test_mediapipe_takes_no_task_of_pairs_or_numbers(place: Place, option: str, part: str) -> None:
    for name in ("train", "dev"):
        Path(f"labels/{name}.csv").write_text("text,other,label\none,two,0\nthree,four,1\n")
    _, err = place.run(f"--finetune.own.{option}", "--stages.file.to=mediapipe", code=2)
    assert mentions(err, "file/own", "--to=mediapipe", part) and place.calls() == [] and not Path("run").exists()


def test_a_converted_model_is_scored_on_examples_that_the_step_names(place: Place) -> None:
    Path("pipeline.toml").write_text(PIPELINE.replace('options.input = "later.csv"', ""))
    _, err = place.run(code=2)
    assert mentions(err, "score/own", "file/own", "task own", "options.input", "[stages.score]")
    assert place.calls() == [] and not Path("run").exists()


def test_too_small_a_disk_is_an_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    _, err = place.run(code=2)
    assert mentions(err, "free space") and place.calls() == []


def test_the_plan_has_parameters_steps_and_flops_and_runs_nothing(place: Place) -> None:
    out, _ = place.run("--dry_run")
    lines = {line.split()[0]: line.split() for line in out.splitlines()}
    recipe_steps = sum(int(line.split("=")[1]) for line in tiny.TOML.splitlines() if line.startswith("steps"))
    assert list(lines)[1:] == [*STEPS, "all"] and int(lines["base"][3].replace(",", "")) == recipe_steps
    assert place.calls() == [] and not Path("run").exists()


@pytest.mark.slow  # starts a process
def test_the_pipeline_leaves_accelerators_to_its_steps(place: Place) -> None:
    assert place.start("--dry_run", platform="tpu").wait(timeout=120) == 0  # this machine has no TPU


def test_a_model_that_reads_padding_needs_one_length_to_take_texts() -> None:
    """ConvBERT's convolutions, unless they mask padding."""
    model, unused = ConvBert(mask_padding=False), cast(Any, None)
    for lengths, fits in (("", False), ("32,64", False), ("64", True)):
        step: Any = SimpleNamespace(name="file", verb="convert", options={"to": "onnx-text", "lengths": lengths})
        checks = check.Checks(unused)
        checks.models[step.name] = model
        with nullcontext() if fits else pytest.raises(UserError, match=mentioning("onnx-text", "--lengths")):
            checks._check_conversion(step, runs=False)
