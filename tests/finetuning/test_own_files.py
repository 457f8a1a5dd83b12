"""Runs on the user's own files beyond their training: tables, reports, later test files, texts of unknown words."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import planted
import pytest
import quiz
from messages import mentions
from planted import results, said

import bertzoo
from bertzoo.finetuning import run
from bertzoo.finetuning.settings import Finetune


@pytest.mark.slow
def test_results_has_a_row_for_each_run(finished: Path, tmp_path, capsys):
    runs = (finished, shutil.copytree(finished, tmp_path / "other"))
    rows = json.loads(said(capsys, "results", *runs, "--json")[0])["rows"]
    accuracy = results(finished)["median"]["dev"]["accuracy"]
    assert [row["cells"]["own dev accuracy"]["value"] for row in rows] == [pytest.approx(accuracy)] * 2
    assert all(row["source"].startswith(str(run)) for row, run in zip(rows, runs, strict=True))
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
    options = ["--task=own", *quiz.OWN, "--seeds=1", "--epochs=1"]
    assert quiz.finetune(quiz_folder, tmp_path / "run", *options) == 0
    assert mentions(said(capsys, "results", tmp_path / "run")[0], "dev exact_match", "dev f1")
    assert mentions(said(capsys, "report", tmp_path / "run")[0], "report.md")
    later = (quiz_folder / "own.jsonl").read_text().splitlines(keepends=True)[:12]
    (file := tmp_path / "later.jsonl").write_text("".join(later))
    document = json.loads(said(capsys, "evaluate", tmp_path / "run", f"--input={file}", "--json")[0])
    assert document["examples"] == {"test": 12} and document["scores"]["test"].keys() == {"exact_match", "f1"}


FOREIGN = "Мороз и солнце день чудесный"


def warning(lines: str) -> str:
    (line,) = (line for line in lines.splitlines() if "[UNK]" in line)
    assert mentions(line, "warning", "100.0%")
    return line


def test_predict_and_evaluate_warn(finished: Path, folder: Path, tmp_path, capsys):
    warning(said(capsys, "predict", finished, FOREIGN)[1])
    (tmp_path / "dev.csv").write_text(f"text,label\n{FOREIGN},0\n{FOREIGN},1\n")
    assert "dev" in warning(said(capsys, "evaluate", finished, f"--data_dir={tmp_path}")[1])
    text = " ".join(planted.WORDS)
    assert "[UNK]" not in said(capsys, "predict", finished, text)[1]


@pytest.mark.slow
def test_finetune_stops_above_a_fifth_and_warns_above_a_hundredth(folder: Path, tmp_path, capsys):
    known = " ".join(planted.WORDS)
    (tmp_path / "dev.csv").write_text((folder / "dev.csv").read_text())
    options = [f"--data_dir={tmp_path}", "--seeds=1", "--epochs=1"]
    for text, code in ((FOREIGN, 2), (f"{known} {FOREIGN}", 0), (known, 0)):
        (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"{text},{i % 2}\n" for i in range(16)))
        run = tmp_path / str(len(text))
        assert planted.finetune(folder, run, *options) == code
        lines = [line for line in capsys.readouterr().err.splitlines() if "[UNK]" in line]
        if text == known:
            assert not lines
            continue
        share = 1 if text == FOREIGN else 5 / (5 + len(planted.WORDS))
        assert len(lines) == 1 and mentions(lines[0], "train", f"{share:.1%}")
        assert run.exists() == (code == 0) and ("warning" in lines[0]) == (code == 0)


@pytest.mark.slow
def test_questions_warn(quiz_run: Path, capsys):
    warning(said(capsys, "predict", quiz_run, FOREIGN, FOREIGN)[1])
