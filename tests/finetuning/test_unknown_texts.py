"""Texts that a fine-tuned model reads as [UNK]: a warning when it trains, scores and predicts."""

from pathlib import Path

import planted
import pytest
from messages import mentions
from planted import said

FOREIGN = "Мороз и солнце день чудесный"


def warning(lines: str) -> str:
    (line,) = (line for line in lines.splitlines() if "[UNK]" in line)
    assert mentions(line, "warning", "100.0%")
    return line


def test_predict_and_evaluate_warn(finished: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    warning(said(capsys, "predict", finished, FOREIGN)[1])
    (tmp_path / "dev.csv").write_text(f"text,label\n{FOREIGN},0\n{FOREIGN},1\n")
    assert "dev" in warning(said(capsys, "evaluate", finished, f"--data_dir={tmp_path}")[1])
    text = " ".join(planted.WORDS)
    assert "[UNK]" not in said(capsys, "predict", finished, text)[1]


def test_finetune_warns(finished: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    rows = "".join(f"{FOREIGN},{i % 2}\n" for i in range(20))
    (tmp_path / "train.csv").write_text(f"text,label\n{rows}")
    (tmp_path / "dev.csv").write_text((folder / "dev.csv").read_text())
    options = [f"--data_dir={tmp_path}", "--seeds=1", "--epochs=1"]
    assert planted.finetune(folder, tmp_path / "run", *options) == 0
    assert "train" in warning(capsys.readouterr().err)


@pytest.mark.slow
def test_questions_warn(quiz_run: Path, capsys: pytest.CaptureFixture) -> None:
    warning(said(capsys, "predict", quiz_run, f"--question={FOREIGN}", f"--context={FOREIGN}")[1])
