"""A run on texts with any number of labels, in columns of 0 and 1: its scores, predictions, reports and teachers."""

import csv
import json
from pathlib import Path

import numpy as np
import planted
import pytest
from messages import mentions
from planted import BAD, GOOD, WORDS, records, results, said

from bertzoo.heads import SequenceClassification
from bertzoo.runs import load_model

METRICS = ["f1_micro", "f1_macro", "exact_match"]
OPTIONS = ["--own.kind=multi_label", '--own.labels=["good","bad"]', "--seeds=1", "--epochs=10"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of texts, in which good words, bad words, both or neither occur."""
    folder, draw = tmp_path_factory.mktemp("several"), np.random.default_rng(3)
    for name, count in (("train", 240), ("dev", 40)):
        lines = ["bad,text,good"]
        for good, bad in draw.integers(0, 2, (count, 2)):
            words = [*draw.choice(WORDS[8:], draw.integers(2, 6))]
            words += [draw.choice(GOOD)] * good + [draw.choice(BAD)] * bad
            lines.append(f"{bad},{' '.join(draw.permutation(words))},{good}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def run(folder: Path, data: Path) -> Path:
    assert planted.finetune(folder, data / "run", f"--data_dir={data}", *OPTIONS) == 0
    return data / "run"


@pytest.fixture(scope="module")
def untrained(folder: Path) -> Path:
    """A model directory with the same head."""
    base = load_model.read_model(folder / "model")
    head = SequenceClassification(labels=("good", "bad"), problem_type="multi_label_classification")
    own = {"kind": "multi_label", "labels": ["good", "bad"]}
    planted.write(folder / "several", base.model, head, base.tokenizer, task="own", max_length=24, own=own)
    return folder / "several"


@pytest.mark.slow
def test_a_run_learns_and_its_score_is_micro_f1(run: Path, capsys):
    (seed,) = results(run)["seeds"]
    assert list(seed["scores"]["dev"]) == METRICS and seed["score"] > 75  # 67 for both labels of every text
    assert seed["score"] == seed["scores"]["dev"]["f1_micro"] and not seed["collapsed"]
    for path in (run, run / "seed-0" / "model"):
        document = json.loads(said(capsys, "evaluate", path, "--json")[0])
        assert document["scores"] == seed["scores"]
    assert all(f"dev {name}" in said(capsys, "results", run)[0] for name in METRICS)
    said(capsys, "report", run)
    assert mentions((run / "report.md").read_text(), *(f"{value:.2f}" for value in seed["scores"]["dev"].values()))


@pytest.mark.slow
def test_predictions_have_every_label_above_one_half(run: Path, data: Path, tmp_path, capsys):
    split = records(capsys, run, "--split=dev")
    with (data / "dev.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    right = [
        set(one["labels"]) == {name for name in ("good", "bad") if row[name] == "1"}
        for one, row in zip(split, rows, strict=True)
    ]
    assert 100 * np.mean(right) == pytest.approx(results(run)["median"]["dev"]["exact_match"])
    for one in split:
        assert one["labels"] == [name for name, chance in one["probabilities"].items() if chance > 0.5]
    assert {len(one["labels"]) for one in split} >= {0, 2}
    lines = said(capsys, "predict", run, "--split=dev")[0].splitlines()
    for line, one in zip(lines, split, strict=True):
        shown = [f"{name} {one['probabilities'][name]:.0%}" for name in one["labels"]]
        assert line.split("\t")[0] == (", ".join(shown) or "-")
    said(capsys, "predict", run, "--split=dev", f"--output={tmp_path / 'a.tsv'}")
    with (tmp_path / "a.tsv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    for row, one in zip(table, split, strict=True):
        assert row["labels"] == ";".join(one["labels"])
        assert [float(row[name]) for name in ("good", "bad")] == pytest.approx(
            [*one["probabilities"].values()], abs=1e-6
        )


@pytest.mark.slow  # another run
def test_a_student_learns_from_a_teacher(run: Path, folder: Path, data: Path, tmp_path):
    options = [f"--data_dir={data}", *OPTIONS, "--alpha=0.7"]
    assert planted.finetune(folder, tmp_path / "student", *options, f"--teacher={run}") == 0
    assert results(tmp_path / "student")["median"]["dev"]["f1_micro"] > 70


def test_a_teacher_must_have_any_number_of_labels_too(untrained, finished, folder, data, tmp_path, capsys):
    options = [f"--data_dir={data}", *OPTIONS, "--alpha=0.3"]
    assert planted.finetune(folder, tmp_path / "other", *options, f"--teacher={finished}") == 2
    assert mentions(capsys.readouterr().err, finished, "one label", "any number of labels")
    assert planted.finetune(folder, tmp_path / "other", "--alpha=0.3", f"--teacher={untrained}") == 2
    assert mentions(capsys.readouterr().err, untrained, "one label", "any number of labels")
    assert not (tmp_path / "other").exists()


def test_a_hugging_face_directory_keeps_the_problem(untrained: Path, tmp_path, capsys):
    said(capsys, "convert", untrained, tmp_path / "hf", "--to=huggingface")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["problem_type"] == "multi_label_classification"
    text = f"{GOOD[0]} {BAD[1]}"
    (ours,), (theirs,) = records(capsys, untrained, text), records(capsys, tmp_path / "hf", text)
    assert ours["probabilities"] == pytest.approx(theirs["probabilities"])
