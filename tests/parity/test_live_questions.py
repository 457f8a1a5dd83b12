"""Files for phones that answer questions: scored beside their models as `bertzoo evaluate` scores these."""

import json
from pathlib import Path

import numpy as np
import pytest
from comparing import needs
from messages import mentions

needs("litert_converter", "ai_edge_litert", "litert_quantizer")
import quiz
from device import on_a_phone
from planted import said


@pytest.mark.parametrize(
    "options", [("--task=squad1", "--epochs=1"), ("--task=squad2", "--squad.joint=true")], ids=["1.1", "2.0"]
)
def test_a_file_scores_as_its_model(options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    quiz.fill(tmp_path)
    run, file = tmp_path / "run", tmp_path / "run.tflite"
    assert quiz.finetune(tmp_path, run, *options, "--seeds=1") == 0
    expected = json.loads(said(capsys, "evaluate", run, "--json")[0])["scores"]["dev"]
    assert 20 < expected["f1"] < 100
    out, _ = said(capsys, "convert", run, file, "--to=litert", "--lengths=16,24")
    scores = json.loads(file.with_name(f"{file.name}.json").read_text())["scores"]
    assert (scores["task"], scores["examples"], scores["of"]) == (options[0].removeprefix("--task="), 24, 24)
    for points in (scores["file"], scores["model"]):
        assert points == pytest.approx(expected, abs=1e-4)
    assert mentions(out, f"{scores['task']}, dev", "f1") and out.count(f"{expected['f1']:.2f}") >= 2
    document = json.loads(said(capsys, "evaluate", file, f"--data_dir={tmp_path}", "--json")[0])
    assert document["scores"]["dev"] == pytest.approx(expected, abs=1e-4) and document["examples"] == {"dev": 24}
    on_a_phone(file, tmp_path / "packed", tmp_path / "given")
    judged = ("phone", "judge", file, tmp_path / "packed", tmp_path / "given")
    assert json.loads(said(capsys, *judged, "--json")[0].splitlines()[-1])["exam"] is None
    for row in sorted((tmp_path / "given").iterdir()):  # a phone that answers by chance
        content = np.frombuffer(row.read_bytes(), "<f4")
        row.write_bytes(content[::-1].tobytes())
    out, _ = said(capsys, *judged, code=1)
    assert mentions(out, "start_logits", "0.99999")
    card = (tmp_path / "run.tflite.files" / "README.md").read_text()
    assert f"{scores['task']}, dev, 24 of 24 examples: {next(iter(expected))} " in card


def test_fewer_examples_are_drawn_evenly(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    quiz.fill(tmp_path)
    assert quiz.finetune(tmp_path, tmp_path / "run", "--task=squad1", "--seeds=1", "--epochs=1") == 0
    file = tmp_path / "run.tflite"
    words = ("convert", tmp_path / "run", file, "--to=litert", "--lengths=24", "--examples=5")
    _, err = said(capsys, *words)
    assert mentions(err, "squad1, dev", "5 of 24", "--examples=0")
    scores = json.loads(file.with_name(f"{file.name}.json").read_text())["scores"]
    assert (scores["examples"], scores["of"]) == (5, 24)
    assert scores["file"]["exact_match"] % 20 == 0
    _, err = said(capsys, "convert", tmp_path / "run", tmp_path / "shorter.tflite", "--to=litert", "--lengths=12")
    assert mentions(err, "squad1: ", 12, 24) and "24 of" not in err
    out, err = said(capsys, "convert", tmp_path / "run", tmp_path / "short.tflite", "--to=litert", "--lengths=7")
    assert mentions(err, 7, 4) and "f1" not in out
