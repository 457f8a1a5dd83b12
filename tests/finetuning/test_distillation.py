"""benchmarks/distillation.py from end to end: a tiny teacher, students with every α, and what is written of them."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import planted
import pytest
from scripts import loaded
from tiny import devices

from bertzoo.cli import main as cli


@pytest.mark.slow  # nine seeds
def test_the_page_says_what_every_alpha_did(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("distillation", monkeypatch)
    planted.fill_pairs(tmp_path / "RTE", "RTE", np.random.default_rng(5))
    written, model, runs = [], folder / "model", tmp_path / "runs"

    def run(command: list[str], check: bool) -> None:
        with devices(1):
            assert check and command[1:3] == ["-m", "bertzoo"] and cli.main(command[3:]) == 0

    monkeypatch.setattr(script, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setattr(script, "write_section", lambda name, text: written.append((name, text)))
    options = ["--epochs=2", "--batch_size=16", "--max_length=24", "--encoder_dropout=0"]
    options += ["--optimizer.learning_rate=1e-2"]
    given = ["--task=rte", f"--data={tmp_path / 'RTE'}", f"--teacher={model}", f"--student={model}", "--seeds=2"]
    monkeypatch.setattr(sys, "argv", ["distillation.py", *given, f"--runs={runs}", *options])
    script.main()
    ((name, text),) = written
    assert name == "distillation.py" and "rte. The teacher is a bert" in text
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    names = ["teacher", "alpha_1.0", "alpha_0.8", "alpha_0.5", "alpha_0.0"]
    assert len(lines) == 1 + len(names)
    for line, folder_name in zip(lines[1:], names, strict=True):
        found = json.loads((runs / folder_name / "results.json").read_text())
        alpha = float(folder_name.removeprefix("alpha_")) if folder_name != "teacher" else 1.0
        assert found["config"]["alpha"] == alpha and len(found["seeds"]) == (1 if folder_name == "teacher" else 2)
        assert ("teacher" in json.loads((runs / folder_name / "run.json").read_text())) == (alpha < 1)
        called = "teacher" if folder_name == "teacher" else f"student, α = {alpha:g}"
        collapsed = sum(seed["collapsed"] for seed in found["seeds"])
        called += f"; {collapsed} collapsed to one class" if collapsed else ""
        scores = [found[what]["dev"]["accuracy"] for what in ("median", "min", "max")]
        cell = f"{scores[0]:.2f}" if folder_name == "teacher" else "{:.2f} ({:.2f} to {:.2f})".format(*scores)
        assert line == f"| {called} | 96 | {len(found['seeds'])} | {cell} |"
    assert "--data=RTE --teacher=model --student=model --seeds=2 --epochs=2" in text and str(tmp_path) not in text
