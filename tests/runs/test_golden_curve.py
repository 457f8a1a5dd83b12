"""A run of the demo follows its recorded losses, and what golden_curve.py compares."""

import json
import subprocess
import sys
import time
from pathlib import Path

import golden_curve
import pytest
import tomli_w
from messages import mentions

NAME = "demo"
RECORD = golden_curve.RECORDS[NAME]


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a run of the demo with losses `off` from the record, and changed settings."""

    def written(off: float = 0.0, points: int = 99, corpus: str = RECORD["corpus_sha256"], **changed: dict) -> Path:
        table = golden_curve.shipped(NAME)
        for name, keys in changed.items():
            table[name] |= keys
        (tmp_path / "config.toml").write_text(tomli_w.dumps(table))
        (tmp_path / "run.json").write_text(json.dumps({"corpus_sha256": corpus}))
        lines = [{"split": "train", "step": 20, "loss": 7.0}]
        for place, point in enumerate(RECORD["points"][:points]):
            losses = {key: value + (off if place == 1 else 0.0) for key, value in point.items() if key != "step"}
            lines.append({"split": "heldout", "step": point["step"], "loss": sum(losses.values()), **losses})
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return tmp_path

    return written


def test_the_recorded_curve_matches_the_shipped_config():
    stages = golden_curve.shipped(NAME)["stages"]
    assert [point["step"] for point in RECORD["points"]][-1] == sum(stage["steps"] for stage in stages)
    losses = [point["mlm_loss"] for point in RECORD["points"]]
    # The recorded losses must differ by more than the tolerance, or the comparison would mean nothing.
    assert losses[0] - losses[-1] > 4 * RECORD["tolerance"] > 0
    assert set(RECORD["points"][0]) == {"step", "mlm_loss", "sop_loss"}


def test_a_run_on_the_curve(write):
    run = write(0.9 * RECORD["tolerance"], run={"log_every": 7}, mesh={"data": 1})
    found = golden_curve.compare(run)
    step = RECORD["points"][1]["step"]
    assert found.matches and found.compared == 2 * len(RECORD["points"]) and mentions(found.text, "demo", step)


@pytest.mark.parametrize("off", [1.1 * RECORD["tolerance"], -1.0, float("nan")])
def test_a_run_off_the_curve(write, off):
    point, found = RECORD["points"][1], golden_curve.compare(write(off))
    assert not found.matches
    assert mentions(found.text, "demo", "MLM loss", f"step {point['step']},", f"{point['mlm_loss']:.4f}")


@pytest.mark.slow
def test_the_demo_starts_on_its_curve(tmp_path):
    run = tmp_path / "run"
    metrics = run / "metrics.jsonl"
    process = subprocess.Popen([sys.executable, "-m", "bertzoo", "pretrain", NAME, f"--run_dir={run}"])
    try:
        while not (metrics.exists() and '"heldout"' in metrics.read_text()):
            assert process.poll() is None
            time.sleep(0.2)
    finally:
        process.terminate()
        process.wait()
    if json.loads((run / "run.json").read_text())["corpus_sha256"] != RECORD["corpus_sha256"]:
        pytest.skip("the documentation of this Python is another text than the curve's")
    found = golden_curve.compare(run)
    assert found.matches and found.compared == 2, found.text
