"""The demo's pipeline, shortened: killed once in every stage it ends with the same file, bit for bit."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertzoo.cli import main as cli
from bertzoo.data.sources import embedded
from bertzoo.jobs.pipeline import load_pipeline
from tests.parity import comparing

comparing.needs("litert_converter", "ai_edge_litert")
SHORT = [
    *("--pretrain.stages.*.steps=2", "--transfer.transfer.steps=1", "--transfer.distillation.0.steps=2"),
    *("--sweep.epochs=1", "--sweep.train_rows=40", "--convert.examples=20", "--benchmark.runs=8"),
]
LABELS = Path(__file__).parents[2] / "launch" / "demo_labels.py"
WORKING = ("corpus", "teacher", "student", "finetuned/own")
PATIENCE = 300.0  # seconds for a step to start


@pytest.mark.slow
def test_a_pipeline_killed_in_every_stage_makes_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("\n\n".join(embedded.documents()[:250]))
    runpy.run_path(str(LABELS))["main"](Path("labels"))
    words = ["pipeline", "demo_pipeline", "--inputs.text=text.txt", "--inputs.labels=labels", *SHORT]
    assert cli.main([*words, "--run_dir=whole"]) == 0
    steps = load_pipeline("demo_pipeline").jobs
    for step in steps:
        kill_in(step.name, [*words, "--run_dir=killed"])
    assert cli.main([*words, "--run_dir=killed"]) == 0
    whole, killed = (Path(name, "stages", "int8", "own.tflite").read_bytes() for name in ("whole", "killed"))
    assert whole == killed
    records = [json.loads(Path(name, "pipeline.json").read_text())["steps"] for name in ("whole", "killed")]
    assert list(records[0]) == list(records[1]) == [step.name for step in steps]
    for name in ("corpus", "teacher", "student", "finetuned/own", "int8/own"):
        assert records[0][name]["output"] == records[1][name]["output"]


def kill_in(name: str, words: list[str]) -> None:
    """Run the command and kill it once the step of this name has started; if it trains, once it has printed a line."""
    log = Path("killed", "logs", f"{name}.log")
    process = subprocess.Popen(
        [sys.executable, "-m", "bertzoo", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
    )
    end = time.monotonic() + PATIENCE
    least = 1 if name in WORKING else 0
    while not (log.exists() and log.stat().st_size >= least) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=60) == -signal.SIGKILL and log.exists()
