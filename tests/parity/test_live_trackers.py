"""A run in the real experiment trackers without a network: two processes begin it, one resumes it."""

import contextlib
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from comparing import needs

needs("wandb", "mlflow", "trackio")

from bertzoo.core import config
from bertzoo.runs.configs import Transfer
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.runs.trackers import Tracker

TRACKERS = ("wandb", "mlflow", "trackio")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of 3 steps in two processes, resumed in one for 2 more steps, and what the trackers have."""
    folder = tmp_path_factory.mktemp("trackers")
    config = tiny.write_config(folder, tiny.write_text(folder / "text.txt"), stages=1)
    variables = os.environ | {
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": f"file:{folder / 'mlflow'}",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "TRACKIO_DIR": str(folder / "trackio"),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=1 --xla_backend_optimization_level=0",
    }
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    words = [sys.executable, "-m", "bertzoo", "pretrain", str(config), f"--run_dir={folder / 'run'}", "--workers=1"]
    words += [f"--run.trackers={json.dumps(TRACKERS)}"]
    two = [f"--distributed.coordinator=127.0.0.1:{port}", "--distributed.processes=2"]
    for steps, own in ((3, [[*two, f"--distributed.process={process}"] for process in (0, 1)]), (5, [[]])):
        started = [
            subprocess.Popen(
                [*words, f"--stages.0.steps={steps}", *more], env=variables, stderr=subprocess.PIPE, text=True
            )
            for more in own
        ]
        ended = [process.communicate(timeout=600)[1] for process in started]
        assert [process.returncode for process in started] == [0] * len(own), ended
    return folder


@pytest.fixture(scope="module")
def losses(folder: Path) -> dict[str, dict[int, float]]:
    """Losses by split and step, as metrics.jsonl has them."""
    found: dict[str, dict[int, float]] = {"train": {}, "heldout": {}}
    for line in map(json.loads, (folder / "run" / "metrics.jsonl").read_text().splitlines()):
        if "split" in line:
            found[line["split"]][line["step"]] = line["loss"]
    assert sorted(found["train"]) == [1, 2, 3, 4, 5]
    return found


def identity(folder: Path, name: str) -> str:
    return json.loads((folder / "run" / "trackers.json").read_text())[name]


def test_mlflow_has_one_run_with_all_steps(folder, losses, monkeypatch):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = MlflowClient(f"file:{folder / 'mlflow'}")
    (run,) = client.search_runs([client.get_experiment_by_name("bertzoo").experiment_id])
    assert (run.info.run_id, run.info.run_name, run.info.status) == (identity(folder, "mlflow"), "run", "FINISHED")
    assert run.data.params["optimizer.kind"] == "lamb" and run.data.params["stages.0.batch_size"] == "16"
    for split, expected in losses.items():
        history = client.get_metric_history(run.info.run_id, f"{split}/loss")
        assert {point.step: point.value for point in history} == expected


def test_mlflow_takes_a_config_with_more_keys_than_a_request_may_have(tmp_path, monkeypatch):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlflow'}")
    (tmp_path / "run").mkdir()
    recipe = config.load(Transfer, ["mobilebert_transfer"], [])
    Tracker("mlflow", RunDirectory(tmp_path / "run"), recipe).close()
    params = MlflowClient().get_run(identity(tmp_path, "mlflow")).data.params
    assert len(params) > 100 and params["teacher.kind"] == "mobilebert"


def test_trackio_has_one_run_with_all_steps(folder, losses):
    (file,) = (folder / "trackio").glob("*.db")
    with contextlib.closing(sqlite3.connect(file)) as database:
        rows = database.execute("select run_name, step, metrics from metrics").fetchall()
    assert {row[0] for row in rows} == {identity(folder, "trackio")}
    for split, expected in losses.items():
        metrics = [(step, json.loads(text)) for _, step, text in rows]
        assert {step: found[f"{split}/loss"] for step, found in metrics if f"{split}/loss" in found} == expected


def test_wandb_has_two_parts_of_one_run(folder, losses):
    """Without a network, a part for each process that reported; `wandb sync` joins them by the run's id."""
    parts = sorted((folder / "run" / "wandb").glob(f"offline-run-*-{identity(folder, 'wandb')}"))
    assert len(parts) == len(list((folder / "run" / "wandb").glob("offline-run-*"))) == 2
    for part, steps in zip(parts, ((1, 2, 3), (4, 5)), strict=True):
        (file,) = part.glob("*.wandb")
        records = re.findall(rb"\x12\ntrain/loss\x82\x01.([\d.]+)", file.read_bytes(), re.DOTALL)  # protobuf
        assert set(map(float, records)) == {losses["train"][step] for step in steps}  # history and summary
