"""Texts that a fine-tuned model reads as [UNK]: a warning when it scores and predicts, an error when it trains."""

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
