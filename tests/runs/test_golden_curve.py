"""A run of the demo follows its recorded losses, and what golden_curve.py compares."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import golden_curve
import make_curve
import pytest
import tomli_w
from messages import mentioning, mentions

from bertzoo.core import config

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


def test_an_unfinished_run_is_compared_up_to_its_step(write):
    found = golden_curve.compare(write(points=3))
    assert found.matches and found.compared == 6


def test_a_corpus_that_was_tokenised_before_is_compared(write):
    """It has the hash of the source from which it was made."""
    found = golden_curve.compare(write(data={"source": "corpus"}))
    assert found.matches and found.compared == 2 * len(RECORD["points"])


@pytest.mark.parametrize("off", [1.1 * RECORD["tolerance"], -1.0, float("nan")])
def test_a_run_off_the_curve(write, off):
    point, found = RECORD["points"][1], golden_curve.compare(write(off))
    assert not found.matches
    assert mentions(found.text, "demo", "MLM loss", f"step {point['step']},", f"{point['mlm_loss']:.4f}")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"corpus": "ab" * 32, "data": {"source": "my/*.txt"}}, ("ab" * 32, RECORD["corpus_sha256"])),
        ({"optimizer": {"beta2": 0.99}}, ("demo", "optimizer.beta2: 0.98 -> 0.99")),
        (
            {"model": {"layers": 3, "heads": 2, "dropout": 0.1, "token_types": 1}},
            ("demo", "model.layers: 2 -> 3", "model.heads: 4 -> 2", "model.token_types: 2 -> 1"),
        ),
    ],
)
def test_a_run_that_cannot_be_compared_exits(write, options, parts):
    with pytest.raises(SystemExit, match=mentioning(*parts)):
        golden_curve.compare(write(**options))


def test_a_curve_is_the_median_of_runs(write, monkeypatch, tmp_path):
    monkeypatch.setattr(make_curve, "FOLDER", tmp_path / "curves")
    runs = []
    for name, off in (("a", 0.0), ("b", 0.004), ("c", -0.001)):
        runs.append(shutil.copytree(write(off), tmp_path / name, ignore=lambda *_: ("a", "b", "c")))
        facts = json.loads((runs[-1] / "run.json").read_text())
        (runs[-1] / "run.json").write_text(json.dumps(facts | {"python": "3.11.0"}))
    monkeypatch.setattr(sys, "argv", ["", NAME, *map(str, runs), "--tolerance=0.02"])
    make_curve.main()
    made = config.read_toml(tmp_path / "curves" / "demo.toml")
    assert made == RECORD | {"corpus": "embedded:python, Python 3.11.0", "tolerance": 0.02}
    monkeypatch.setattr(sys, "argv", [*sys.argv[:-1], "--tolerance=0.007"])
    with pytest.raises(SystemExit, match=mentioning("--tolerance=0.007")):
        make_curve.main()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"corpus": "0"}, ("trained",)),
        ({"data": {"source": "corpus"}}, (" corpus", "demo")),
        ({"optimizer": {"beta2": 0.9}}, ("demo", "optimizer.beta2: 0.98 -> 0.9")),
    ],
)
def test_a_curve_of_other_runs_is_rejected(write, monkeypatch, tmp_path, options, parts):
    monkeypatch.setattr(make_curve, "FOLDER", tmp_path / "curves")
    runs = [tmp_path / name for name in ("a", "b")]
    for run, changed in zip(runs, ({}, options), strict=True):
        shutil.copytree(write(**changed), run, ignore=lambda *_: ("a", "b"))
    monkeypatch.setattr(sys, "argv", ["", NAME, *map(str, runs)])
    with pytest.raises(SystemExit, match=mentioning(runs[1], *parts)):
        make_curve.main()
    assert not (tmp_path / "curves").exists()


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


def test_microbatches_left_open_and_an_older_run_without_kind_do_not_differ() -> None:
    shipped = {"kind": "pretrain", "stages": [{"accumulate": "none"}]}
    assert not golden_curve.differences(shipped, {"stages": [{"accumulate": 1}]})
    assert len(golden_curve.differences(shipped, {"kind": "pretrain", "stages": [{"accumulate": 2}]})) == 1
