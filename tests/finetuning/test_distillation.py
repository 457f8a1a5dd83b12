"""benchmarks/learning/distillation.py from end to end: a tiny teacher, students with every α, and the result file."""

import json
import sys
from pathlib import Path

import numpy as np
import planted
import pytest
from tiny import devices

from benchmarks.learning import distillation
from benchmarks.lib import program
from bertzoo.cli import main as cli


@pytest.mark.slow  # nine seeds
def test_a_row_for_every_alpha(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.fill_pairs(tmp_path / "RTE", "RTE", np.random.default_rng(5))
    model, runs, out = folder / "model", tmp_path / "runs", tmp_path / "out.json"

    def run(*words: str) -> None:
        with devices(1):
            assert cli.main(list(words)) == 0

    monkeypatch.setattr(program, "bertzoo", run)
    options = ["--epochs=2", "--batch_size=16", "--max_length=24", "--encoder_dropout=0"]
    options += ["--optimizer.learning_rate=1e-2", f"--out={out}"]
    sides = ["--task=rte", f"--data={tmp_path / 'RTE'}", f"--teacher={model}", f"--student={model}", "--seeds=2"]
    monkeypatch.setattr(sys, "argv", ["distillation.py", *sides, f"--runs={runs}", *options])
    distillation.main()
    record = json.loads(out.read_text())
    assert "teacher is a bert" in record["context"][0] and str(tmp_path) not in out.read_text()
    names = ["teacher", "alpha_1.0", "alpha_0.8", "alpha_0.5", "alpha_0.0"]
    for row, name in zip(record["tables"]["runs"], names, strict=True):
        found = json.loads((runs / name / "results.json").read_text())
        alpha = float(name.removeprefix("alpha_")) if name != "teacher" else 1.0
        assert found["config"]["alpha"] == alpha and len(found["seeds"]) == (1 if name == "teacher" else 2)
        assert ("teacher" in json.loads((runs / name / "run.json").read_text())) == (alpha < 1)
        title = "teacher" if name == "teacher" else f"student, α = {alpha:g}"
        collapsed = sum(seed["collapsed"] for seed in found["seeds"])
        title += f"; {collapsed} collapsed to one class" if collapsed else ""
        scores = [round(found[which]["dev"]["accuracy"], 2) for which in ("median", "min", "max")]
        score = scores[0] if name == "teacher" else dict(zip(("median", "least", "greatest"), scores, strict=True))
        assert list(row.values()) == [title, 96, len(found["seeds"]), "accuracy", score]
    assert "--data=RTE --teacher=model --student=model --seeds=2" in record["command"]
