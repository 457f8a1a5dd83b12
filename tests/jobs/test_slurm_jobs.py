"""`--executor=slurm` with a fake srun: options, failed and killed jobs, a stop and a restart."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import place
import pytest
from messages import mentions

from bertzoo.cli import sweep as command
from bertzoo.jobs import run
from bertzoo.jobs.job import CommandJob
from bertzoo.jobs.sweep import load_sweep

SLURM = ("--from=m", "--tasks=cola", "--executor=slurm")


@pytest.fixture
def cluster(sweeps: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A place with a sweep, and srun among the programs."""
    Path("bin").mkdir()
    Path("bin/srun").write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("fake_srun.py")} "$@"\n')
    Path("bin/srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path('bin').absolute()}{os.pathsep}{os.environ['PATH']}")
    return sweeps


def test_jobs_run_by_srun_and_failed_and_killed_ones_run_again(cluster: Any) -> None:
    cluster.behave({"alpha=0.9": {"exit": 1, "say": "bertzoo: no"}, "alpha=1.0": {"exit": -signal.SIGKILL}})
    _, err = cluster.sweep(*SLURM, "--srun=--partition=gpu", "--srun=--time=60", code=1)
    assert mentions(err, "32 side", "no (exit code 1", "exit code 137", "2 of 3")
    lines = Path("srun").read_text().splitlines()
    assert len(lines) == 3 and all(line.endswith("--partition=gpu --time=60") for line in lines)
    assert all("--nodes=1 --ntasks=1 --job-name=bertzoo-cola/" in line for line in lines)
    cluster.started()
    cluster.behave({})
    cluster.sweep(*SLURM, "--processes=1", "--cores=2", "--memory=1.5", "--srun=-v")
    assert "--cpus-per-task=2 --mem=1500M -v" in Path("srun").read_text()
    assert [call["line"].partition("alpha=")[2][:3] for call in cluster.started()] == ["0.9", "1.0"]
    assert "best of cola: 60.50" in cluster.sweep(*SLURM)[0] and cluster.started() == []


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stop_lets_the_jobs_save(cluster: Any, number: signal.Signals) -> None:
    """Even a killed sweep leaves no job on the cluster that the same command would start again."""
    cluster.behave({"alpha": {"wait": True}})
    with place.started_sweep("--tasks=cola", "--executor=slurm") as process:
        pids = place.wait_for_runs(3)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == (3 if number == signal.SIGTERM else -number), err
    place.until(lambda: all(map(place.gone, pids)))
    cluster.started()
    cluster.behave({})
    cluster.sweep(*SLURM)
    assert len(cluster.started()) == 3


def test_a_study_queues_four_points_at_once(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queued, points = [], load_sweep("sweep.toml", [("from", "m")], ["cola"])

    class Study:
        total = len(points.jobs)

        def choose(self, checks: Any, processes: int) -> Sequence[CommandJob]:
            queued.append(processes)
            chosen, checks.record.list = () if checks.record.list.jobs else points.jobs, points
            return chosen

    monkeypatch.setattr(command, "load", lambda options: (points, Study()))
    _, err = cluster.sweep(*SLURM)
    cluster.sweep(*SLURM, "--processes=7")
    assert queued == [4, 4, 7, 7] and mentions(err, "3 points, 0 already finished, 4 side", "3/3 cola")


def test_options_of_slurm_need_slurm(sweeps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for more in ((), ("--list",)):
        _, err = sweeps.sweep("--from=m", "--srun=--partition=gpu", *more, code=2)
        assert mentions(err, "--srun=--partition=gpu", "--executor=slurm")
    monkeypatch.setattr(run.shutil, "which", lambda name: None)
    _, err = sweeps.sweep(*SLURM, code=2)
    assert mentions(err, "--executor=slurm", "srun") and sweeps.started() == [] and not Path("runs").exists()
