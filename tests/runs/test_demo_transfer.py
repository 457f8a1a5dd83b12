"""configs/demo_teacher.toml and demo_transfer.toml, as launch/demo_transfer.sh runs them, for a few steps."""

import re
import shlex
from pathlib import Path

import pytest

from bertzoo.cli.main import main

SCRIPT = Path(__file__).parents[2] / "launch" / "demo_transfer.sh"
FEW = {"pretrain": ["--stages.*.steps=2"], "transfer": ["--transfer.steps=2", "--distillation.0.steps=3"]}


@pytest.mark.slow
def test_the_script_s_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Teacher and student agree wherever a run compares them, and the script's files exist."""
    monkeypatch.chdir(tmp_path)
    text = SCRIPT.read_text().replace("\\\n", " ")
    for name, value in re.findall(r"\b(teacher|student)=(\S+)", text):
        text = text.replace(f'"${name}', f'"{value}')
    commands = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("bertzoo ")]
    assert [words[0] for words in commands] == ["pretrain", "transfer", "report", "evaluate", "evaluate", "inspect"]
    for verb, *words in commands:
        words = [word for word in words if not word.startswith("--hidden_below_unigram")]
        assert main([verb, *words, *FEW.get(verb, [])]) == 0, verb
    said = "".join(capsys.readouterr())
    assert "other than in runs/make-demo-teacher" not in said and "copied from the teacher: embedding" in said
    assert (tmp_path / "runs/make-demo-student/attention.png").stat().st_size > 1000
