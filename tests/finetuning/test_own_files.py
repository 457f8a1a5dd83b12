"""Runs on the user's own files beyond their training: tables, reports, TensorBoard, and a later test file."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import quiz
from messages import mentions
from planted import results, said

import bertzoo
from bertzoo.finetuning import run
from bertzoo.finetuning.settings import Finetune


@pytest.mark.slow
def test_results_has_a_row_for_each_run(finished: Path, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "other")
    rows = json.loads(said(capsys, "results", finished, tmp_path / "other", "--json")[0])["rows"]
    accuracy = results(finished)["median"]["dev"]["accuracy"]
    assert [row["cells"]["own dev accuracy"]["value"] for row in rows] == [pytest.approx(accuracy)] * 2
    assert all(
        row["source"].startswith(str(run)) for row, run in zip(rows, (finished, tmp_path / "other"), strict=True)
    )
    assert mentions(said(capsys, "results", finished)[0], "own dev accuracy", finished)


def test_report_writes_scores_and_curves(finished: Path, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "results.json").unlink()  # as while it runs
    shutil.rmtree(run / "seed-1")
    printed = said(capsys, "report", run)[0]
    assert all((run / name).read_bytes().startswith(b"\x89PNG") for name in ("loss.png", "scores.png"))
    page = (run / "report.md").read_text()
    seed = results(finished)["seeds"][0]
    assert mentions(page, "1 of 2 seeds", f"{seed['scores']['dev']['accuracy']:.2f}", "dev accuracy")
    assert mentions(printed, "report.md", "loss of seed 0") and "held-out, step" in printed
    shutil.rmtree(run / "seed-0")
    assert mentions(said(capsys, "report", run, code=2)[1], run)


def test_every_seed_has_tensorboard_files(finished: Path):
    for seed in ("seed-0", "seed-1"):
        (events,) = (finished / seed / "tensorboard").iterdir()
        assert all(name in events.read_bytes() for name in (b"train/loss", b"heldout/dev_accuracy"))


def test_a_later_file_is_scored(finished: Path, folder: Path, tmp_path, capsys):
    assert mentions(said(capsys, "evaluate", finished, "--split=test", code=2)[1], "test", "--input")
    shutil.copy(folder / "dev.csv", tmp_path / "later.csv")
    document = json.loads(said(capsys, "evaluate", finished, f"--input={tmp_path / 'later.csv'}", "--json")[0])
    dev = json.loads(said(capsys, "evaluate", finished, "--json")[0])
    assert document["scores"] == {"test": dev["scores"]["dev"]} and document["examples"] == {"test": 40}
    assert bertzoo.evaluate(finished, input=tmp_path / "later.csv")["scores"] == document["scores"]
    printed = said(capsys, "evaluate", finished, f"--input={tmp_path / 'later.csv'}")[0]
    assert "own, later.csv, " in printed and "test" not in printed
    message = said(capsys, "evaluate", finished, "--input=later.csv", "--split=dev", code=2)[1]
    assert mentions(message, "--input=later.csv", "--split")
    assert mentions(said(capsys, "evaluate", finished, "--input=none.csv", code=2)[1], "none.csv")


def test_a_missing_training_file_is_named_by_its_option(folder: Path, tmp_path, capsys):
    words = ["finetune", "finetune", "--task=own", f"--from={folder / 'model'}", f"--run_dir={tmp_path / 'run'}"]
    error = said(capsys, *words, code=2)[1]
    assert mentions(error, "train", "--own.train=") and "--input" not in error
    error = said(capsys, *words, "--own.dev=dev.csv", code=2)[1]
    assert mentions(error, "only for dev", "--own.train=")


def test_a_folder_with_usual_names_needs_no_other_options(folder: Path, monkeypatch):
    class Loads(Exception):
        """Raised in place of loading the model, with the recipe of the run."""

    def load(path, recipe, task):
        raise Loads(recipe, task)

    monkeypatch.setattr(run, "load_starting_model", load)
    recipe = Finetune(task="own", data_dir=str(folder))
    with pytest.raises(Loads) as caught:
        run.train(recipe, str(folder / "run"), folder / "model", None)
    used, task = caught.value.args
    assert used == task.recipe == replace(recipe, own=replace(recipe.own, train="train.csv", dev="dev.csv"))
    assert (task.task.train, task.task.dev, task.task.labels) == (("train",), ("dev",), ("0", "1"))


@pytest.mark.slow
def test_questions_have_tables_reports_and_later_files(quiz_folder: Path, tmp_path, capsys):
    columns = ["--own.question=asked", "--own.context=paragraph", "--own.answer=said", "--own.train=own.jsonl"]
    options = ["--task=own", "--own.kind=span", *columns, "--squad.heldout=0.3", f"--data_dir={quiz_folder}"]
    assert quiz.finetune(quiz_folder, tmp_path / "run", *options, "--seeds=1", "--epochs=1") == 0
    assert mentions(said(capsys, "results", tmp_path / "run")[0], "dev exact_match", "dev f1")
    assert mentions(said(capsys, "report", tmp_path / "run")[0], "report.md")
    later = (quiz_folder / "own.jsonl").read_text().splitlines(keepends=True)[:12]
    (tmp_path / "later.jsonl").write_text("".join(later))
    document = json.loads(
        said(capsys, "evaluate", tmp_path / "run", f"--input={tmp_path / 'later.jsonl'}", "--json")[0]
    )
    assert document["examples"] == {"test": 12} and document["scores"]["test"].keys() == {"exact_match", "f1"}
