"""`bertzoo runs` and `bertzoo resume`: the state of every run in a folder or bucket, and the rest of a run."""

import json
import os
import shutil
import time
from pathlib import Path

import fsspec
import numpy as np
import pytest
from messages import mentions
from tiny import records

from bertzoo.cli.main import main
from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.runs.report import QUIET, list_runs


def write(run: Path, *lines: dict, config: str = 'kind = "pretrain"\n[[stages]]\nsteps = 30\n') -> Path:
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.toml").write_text(config)
    if lines:
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


TRAIN, HELDOUT = {"step": 20, "split": "train", "loss": 3.0}, {"step": 10, "split": "heldout", "loss": 2.5}


def event(name: str, step: int = 20) -> dict:
    return {"event": name, "step": step}


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ([], "interrupted"),
        ([TRAIN], "interrupted"),
        ([TRAIN, event("stopped")], "stopped"),
        ([TRAIN, event("stopped"), event("resumed")], "interrupted"),
        ([TRAIN, event("non_finite")], "failed"),
        ([TRAIN, event("finished", 30)], "finished"),
    ],
)
def test_the_last_event_is_the_state(lines, state, tmp_path):
    write(tmp_path / "a" / "run", *lines)
    (found,) = list_runs(str(tmp_path))
    assert (found.name, found.kind, found.state, found.steps) == ("a/run", "pretrain", state, 30)
    held = atomic.hold(tmp_path / "a" / "run" / atomic.NAME, "run")
    assert list_runs(str(tmp_path))[0].state == ("finished" if state == "finished" else "running")
    held.close()
    assert list_runs(str(tmp_path))[0].state == state


def test_loss_and_time_of_the_newest_run_last(tmp_path, capsys):
    old = write(tmp_path / "old", TRAIN, HELDOUT)
    write(tmp_path / "new", TRAIN)
    with (tmp_path / "new" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2')  # torn
    os.utime(old / "metrics.jsonl", (1e9, 1e9))
    os.utime(old / "config.toml", (1e9, 1e9))
    write(old / "inside")  # a run inside of a run is a part of it
    first, second = list_runs(str(tmp_path))
    assert (first.name, first.loss, first.step, first.seen) == ("old", 2.5, 10, 1e9)
    assert (second.name, second.loss, second.step) == ("new", 3.0, 20)
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert [run["name"] for run in json.loads(capsys.readouterr().out)] == ["old", "new"]
    assert main(["runs", str(tmp_path)]) == 0
    assert "20 of 30" in capsys.readouterr().out


def test_a_fine_tuning_finishes_with_its_results(tmp_path):
    run = write(tmp_path / "tuned", config='kind = "finetune"\nepochs = 2\n')
    write(run / "seed-0", TRAIN, event("finished"))
    (run / "seed-0" / "config.toml").unlink()
    (found,) = list_runs(str(tmp_path))
    assert (found.kind, found.state, found.step) == ("finetune", "interrupted", 20)
    (run / "results.json").write_text('{"best": 0}')
    (run / "seed-0" / "model").mkdir()
    assert list_runs(str(tmp_path))[0].state == "finished"


def test_runs_of_a_bucket():
    system = fsspec.filesystem("memory")
    system.pipe("/listed/runs/first/config.toml", b'kind = "pretrain"\n')
    system.pipe("/listed/runs/first/metrics.jsonl", json.dumps(TRAIN).encode())
    (found,) = list_runs("memory://listed/runs")
    assert (found.name, found.state, found.step) == ("first", "running", 20)
    assert abs(found.seen - time.time()) < QUIET
    system.pipe("/listed/runs/first/metrics.jsonl", json.dumps(event("stopped")).encode())
    assert list_runs("memory://listed/runs")[0].state == "stopped"


def test_no_folder_no_runs_and_a_damaged_config(tmp_path):
    with pytest.raises(UserError):
        list_runs(str(tmp_path / "missing"))
    assert list_runs(str(tmp_path)) == []
    damaged = ("kind = [", "stages = 3", 'kind = "other"', "stages = [{steps = 'x'}]")
    for name, text in zip("abcd", damaged, strict=True):
        write(tmp_path / name, config=text)
    write(tmp_path / "e", {"step": 3, "loss": 2.0}, TRAIN)  # neither training nor held-out
    write(tmp_path / "whole", TRAIN | {"loss": float("nan")})
    assert [(run.name, run.state) for run in list_runs(str(tmp_path))][:5] == [(name, "damaged") for name in "abcde"]
    assert main(["runs", str(tmp_path)]) == 0
    (tmp_path / "empty" / "config.toml").mkdir(parents=True)  # no run
    assert len(list_runs(str(tmp_path))) == 6
    write(tmp_path / "bare")
    for words in (["resume", str(tmp_path)], ["resume", str(tmp_path / "a")], ["resume", str(tmp_path / "bare")]):
        assert main(words) == 2


def test_resume_runs_the_rest(finished_run, one_device, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    steps = sorted(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdecimal())
    shutil.rmtree(run / "checkpoints" / str(steps[-1]))
    record = json.loads((run / "run.json").read_text())
    record["from"] = {"path": str(tmp_path / "gone"), "parameters_sha256": "0" * 64}
    (run / "run.json").write_text(json.dumps(record))
    assert main(["resume", str(run), f"--run_dir={tmp_path / 'other'}"]) == 2
    assert main(["resume", str(run)]) == 0
    assert mentions(capsys.readouterr().err, f"--run_dir={run}", f"--from={tmp_path / 'gone'}")
    record["from"]["path"] = "gs://bucket/model"
    (run / "run.json").write_text(json.dumps(record))
    assert main(["resume", str(run)]) == 2 and "gs://bucket/model" in capsys.readouterr().err
    newest = [records(folder) for folder in (finished_run, run)]
    losses = [[line["loss"] for line in lines if line.get("split") == "heldout"][-1] for lines in newest]
    np.testing.assert_array_equal(*losses)
    assert [line.get("event") for line in newest[1]].count("resumed") == 1


def test_alerts_name_the_runs_that_need_a_person(tmp_path, capsys):
    runs = [write(tmp_path / "good", TRAIN), write(tmp_path / "quiet", TRAIN)]
    write(tmp_path / "ended", TRAIN, event("finished"))
    for name in ("config.toml", "metrics.jsonl"):
        os.utime(runs[1] / name, (1e9, 1e9))
    words = ["runs", str(tmp_path), "--stalled=10"]
    held = [atomic.hold(run / atomic.NAME, "run") for run in runs]
    assert main([*words, "--json"]) == 1
    found = {run["name"]: run["alert"] for run in json.loads(capsys.readouterr().out)}
    assert found == {"good": None, "quiet": "stalled", "ended": None}
    held[1].close()
    assert main(words) == 1 and capsys.readouterr().out.count("interrupted") == 1
    shutil.rmtree(runs[1])
    assert main(words) == 0
    held[0].close()
    assert main(["runs", str(tmp_path)]) == 0
