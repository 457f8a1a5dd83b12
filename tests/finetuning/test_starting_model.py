"""Files of a rejected, stopped or damaged run, and the same command afterwards."""

import json
import shutil
from pathlib import Path

import pytest
from messages import mentions
from planted import finetune, results

from bertzoo.runs import load_model


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def said(capsys: pytest.CaptureFixture) -> str:
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bertzoo: ")]
    return line


def test_a_rejected_start_leaves_no_files(folder: Path, tmp_path, capsys):
    run = tmp_path / "runs" / "first"
    assert finetune(folder, run, f"--data_dir={tmp_path}") == 2
    assert mentions(said(capsys), "train.csv", "exist") and not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_resumed_run_rejects_another_teacher(finished: Path, folder: Path, tmp_path, capsys):
    run = tmp_path / "taught"
    options = ["--seeds=1", "--epochs=1", "--train_rows=32", "--alpha=0.5"]
    assert finetune(folder, run, *options, f"--teacher={finished}") == 0
    before = results(run)
    chosen = load_model.read_model(finished).params
    # A teacher of the same parameters in another place is the same one; the other seed's is another.
    best = results(finished)["best"]
    moved = shutil.copytree(finished / f"seed-{best}" / "model", tmp_path / "moved")
    assert finetune(folder, run, *options, f"--teacher={moved}") == 0 and results(run) == before
    other = finished / f"seed-{1 - best}" / "model"
    assert any((chosen[name] != array).any() for name, array in load_model.read_model(other).params.items())
    capsys.readouterr()
    assert finetune(folder, run, *options, f"--teacher={other}") == 2
    assert mentions(said(capsys), "parameters", f"--teacher={other}", run)


def test_a_resumed_run_rejects_other_examples(copied: Path, folder: Path, tmp_path, capsys):
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("train.csv", "dev.csv"):
        shutil.copy(folder / name, moved / name)
    before = results(copied)["seeds"]
    options = [f"--data_dir={moved}", f"--from={folder / 'model'}"]
    assert finetune(folder, copied, *options) == 0 and results(copied)["seeds"] == before
    lines = (moved / "dev.csv").read_text().splitlines()
    text, label, number = lines[3].split(",")
    (moved / "dev.csv").write_text("\n".join([*lines[:3], f"{text},{1 - int(label)},{number}", *lines[4:]]) + "\n")
    assert finetune(folder, copied, *options, "--seeds=3") == 2
    assert mentions(said(capsys), "examples", " dev ", moved, copied)
    with (moved / "train.csv").open("a") as file:
        file.write("one more,1,1.0\n")
    assert finetune(folder, copied, *options) == 2
    assert mentions(said(capsys), "examples", "train and dev", moved)
    assert results(copied)["seeds"] == before


SCORES = "seed-1/scores.json"


@pytest.mark.parametrize(
    ("name", "text"), [("run.json", "{"), *((SCORES, text) for text in ("[{", '{"epoch": 1}', '[{"epoch": 1}]', "[3]"))]
)
def test_damaged_files_are_one_sentence(name: str, text: str, copied: Path, folder: Path, capsys):
    file = copied / name
    file.write_text(text)
    assert finetune(folder, copied) == 2
    line = said(capsys)
    assert mentions(line, file, "is damaged")
    assert name != SCORES or mentions(line.replace(str(file), ""), file.parent)


def test_checkpoints_of_a_finished_seed_are_removed(copied: Path, folder: Path) -> None:
    # As if it had been killed between its last score and the end.
    left = copied / "seed-0" / "checkpoints"
    (left / "60").mkdir(parents=True)
    (copied / "results.json").unlink()
    assert finetune(folder, copied) == 0
    assert not left.exists() and json.loads((copied / "run.json").read_text())["python"].startswith("3.")
