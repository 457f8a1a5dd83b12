"""A run of the demo begins with the recorded losses: the medians of three runs."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertzoo.core import config

RECORD = config.read_toml(Path(__file__).parents[1] / "golden" / "curves" / "demo.toml")


@pytest.mark.slow
def test_the_demo_starts_on_its_curve(tmp_path):
    metrics = tmp_path / "run" / "metrics.jsonl"
    process = subprocess.Popen([sys.executable, "-m", "bertzoo", "pretrain", "demo", f"--run_dir={metrics.parent}"])
    try:
        while not (metrics.exists() and '"heldout"' in metrics.read_text()):
            assert process.poll() is None
            time.sleep(0.2)
    finally:
        process.terminate()
        process.wait()
    if json.loads((metrics.parent / "run.json").read_text())["corpus_sha256"] != RECORD["corpus_sha256"]:
        pytest.skip("the documentation of this Python is another text than the curve's")
    line = next(json.loads(line) for line in metrics.read_text().splitlines() if '"heldout"' in line)
    (point,) = (point for point in RECORD["points"] if point["step"] == line["step"])
    assert {name: line[name] for name in point} == pytest.approx(point, abs=RECORD["tolerance"])
