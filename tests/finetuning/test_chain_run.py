"""A chain of real runs: a tiny teacher and a tiny student on two tasks, stopped and run on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import planted
import pytest
import quiz

from bertzoo.cli import main as cli

CHAIN = """
[chain]
base = "finetune"
models = ["student", "teacher"]
table = "squeezebert_dev"

[options]
seeds = 1
epochs = 2
batch_size = 16
max_length = 24
encoder_dropout = 0.0
log_every = 15
optimizer.learning_rate = 1e-2

[stages.first]
from = "teacher"
tasks = ["rte"]

[stages.teachers]
from = "first"
tasks = ["mrpc"]

[stages.student_rte]
from = "student"
teacher = "first"
tasks.rte = { alpha = 0.5 }

[stages.students]
from = "student_rte"
teacher = "teachers"
tasks.mrpc = { alpha = 0.8 }

[stages.answers]
from = "student_rte"
tasks.squad1 = { squad.max_question = 4, squad.stride = 8 }
"""


@pytest.mark.slow
def test_a_killed_chain_resumes_to_the_same_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(5)
    for task in planted.HEADS:
        planted.fill_pairs(Path("glue", task), task, draw)
    for split, articles in (("train", 6), ("dev", 2)):
        Path("glue", f"{split}-v1.1.json").write_text(json.dumps(quiz.table(draw, articles, nulls=False)))
    Path("chain.toml").write_text(CHAIN)
    model = folder / "model"
    words = ["chain", "chain.toml", f"--model.student={model}", f"--model.teacher={model}", "--data_dir=glue"]
    words += ["--processes=1"]
    assert cli.main([*words, "--run_dir=whole"]) == 0
    out = capsys.readouterr().out
    assert "measured here" in out and out.count("whole, from ") >= 1
    command = [sys.executable, "-m", "bertzoo", *words, "--run_dir=killed"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    for _ in range(2400):  # in the middle of the third run, which has a checkpoint then
        if Path("killed/stages/student_rte/rte/seed-0/scores.json").exists():
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 3
    assert Path("killed/stages/first/rte/results.json").exists()
    assert not Path("killed/stages/students/mrpc").exists()
    assert cli.main([*words, "--run_dir=killed"]) == 0
    for run in ("first/rte", "teachers/mrpc", "student_rte/rte", "students/mrpc", "answers/squad1"):
        one, other = (json.loads(Path(name, "stages", run, "results.json").read_text()) for name in ("whole", "killed"))
        assert one["seeds"] == other["seeds"]
    # A pattern such as stages/students/* matches runs only.
    assert {path.name for path in Path("killed/stages/students").iterdir()} == {"mrpc"}
    record = json.loads(Path("killed/stages/students/mrpc/run.json").read_text())
    assert record["from"]["path"] == os.path.abspath("killed/stages/student_rte/rte")
    assert record["teacher"]["path"] == os.path.abspath("killed/stages/teachers/mrpc")
