"""Whole runs of several real processes: equal to one, resumed by another number, and ended when one is lost."""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import tiny
from around import environment, free_port
from arrays import assert_equal_parameters
from messages import mentions

from bertzoo.cli.main import main
from bertzoo.runs import load_model
from bertzoo.runs.report import list_runs
from bertzoo.train import checkpoint, contents
from bertzoo.train.state import named

pytestmark = pytest.mark.slow
STEPS = 66  # so many that a signal never comes too late
CHANGES = (
    *("--stages.1.steps=60", "--run.save_every=6", "--run.evaluate_every=12"),
    *("--workers=1", "--distributed.heartbeat_timeout=20"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("many")
    tiny.write_config(made, tiny.write_text(made / "text.txt"))
    return made


class Processes:
    """The processes of `bertzoo pretrain`, or of the words of another verb, which share the run's devices; killed with
    the context.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        count: int,
        options: Sequence[str] = (),
        own: Sequence[Sequence[str]] = (),
        fault: str | None = None,
        devices: int = 4,
        words: Sequence[str] = (),
    ):
        self.metrics, port = folder / run / "metrics.jsonl", free_port()
        words = words or ("pretrain", str(folder / "tiny.toml"), *CHANGES)
        command = [sys.executable, "-m", "bertzoo", *words]
        command += [] if words[0] == "resume" else [f"--run_dir={folder / run}"]
        self.each: list[subprocess.Popen[str]] = []
        for process in range(count):
            where = [f"--distributed.coordinator=127.0.0.1:{port}", f"--distributed.processes={count}"]
            where = [*where, f"--distributed.process={process}"] if count > 1 else []
            mine = own[process] if own else ()
            self.each.append(
                subprocess.Popen(
                    [*command, *where, *options, *mine],
                    env=environment(devices // count, fault),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                )
            )

    def reach(self, step: int) -> None:
        """Wait until a step is logged."""
        for _ in range(2000):
            with contextlib.suppress(FileNotFoundError):
                if any(row.get("step", 0) >= step for row in rows(self.metrics)):
                    return
            assert all(one.poll() is None for one in self.each), self.end()
            time.sleep(0.1)
        pytest.fail(f"step {step} was not reached")

    def end(self, timeout: float = 300) -> list[tuple[int, str]]:
        """The exit code and the last sentence of each."""
        ended = []
        for one in self.each:
            _, error = one.communicate(timeout=timeout)
            ended.append((one.returncode, error.strip().splitlines()[-1] if error.strip() else ""))
        return ended


@contextlib.contextmanager
def started(*args, **options) -> Iterator[Processes]:
    processes = Processes(*args, **options)
    try:
        yield processes
    finally:
        for one in processes.each:
            with contextlib.suppress(ProcessLookupError):
                one.kill()
            one.communicate()


def rows(metrics: Path) -> list[dict]:
    return [json.loads(line) for line in metrics.read_text().splitlines() if line.endswith("}")]


def losses(folder: Path, run: str) -> dict[tuple[str, int], float]:
    found = rows(folder / run / "metrics.jsonl")
    return {(row["split"], row["step"]): row["loss"] for row in found if "split" in row}


def assert_equal_runs(folder: Path, run: str, other: str) -> None:
    """Losses to 1e-6 of each other, parameters to 1e-5 of the tensor's largest."""
    ours, theirs = losses(folder, run), losses(folder, other)
    assert len(theirs) > STEPS
    # After a signal there is no time for an evaluation that was due at the same step.
    assert all(split == "heldout" for split, _ in theirs.keys() - ours.keys()) and len(theirs.keys() - ours.keys()) < 3
    np.testing.assert_allclose(list(ours.values()), [theirs[key] for key in ours], rtol=1e-6)
    found, expected = (named(load_model.load_run(folder / name).params) for name in (run, other))
    assert_equal_parameters(found, expected, 1e-5)


@pytest.fixture(scope="module")
def alone(folder: Path) -> str:
    """A run of one process."""
    with started(folder, "alone", 1) as processes:
        assert processes.end()[0][0] == 0
    return "alone"


def test_two_processes_equal_one(folder: Path, alone: str) -> None:
    with started(folder, "two", 2, ("--mesh.fsdp=2",)) as processes:
        ended = processes.end()
    assert [code for code, _ in ended] == [0, 0] and f"finished after {STEPS} steps" in ended[0][1]
    assert_equal_runs(folder, "two", alone)
    assert json.loads((folder / "two" / "run.json").read_text())["processes"] == 2
    tensorboard = list((folder / "two" / "tensorboard").iterdir())
    assert len(tensorboard) == 1, "only the first process writes"


def test_a_run_resumes_with_other_processes_devices_and_meshes(folder: Path, alone: str) -> None:
    parts = (  # processes, devices, their mesh, and the step after which the run moves on
        (2, 8, "--mesh.fsdp=2", 3),
        (4, 4, "--mesh.tensor=2", 12),
        (1, 2, "--mesh.data=1 --mesh.fsdp=2", 22),
        (2, 8, "--mesh.data=2 --mesh.fsdp=2 --mesh.tensor=2", None),
    )
    meshes = []
    for count, devices, mesh, step in parts:
        with started(folder, "moved", count, mesh.split(), devices=devices) as processes:
            if step is not None:
                processes.reach(step)
                processes.each[-1].send_signal(signal.SIGTERM)
            ended = processes.end()
        assert [code for code, _ in ended] == [0 if step is None else 3] * count, ended
        saved = contents.read_contents(checkpoint.find_checkpoint(folder / "moved" / "checkpoints"))
        meshes.append(tuple(saved.mesh.values()))
        about = json.loads((folder / "moved" / "run.json").read_text())
        assert (about["processes"], len(about["devices"])) == (count, devices)
    assert meshes == [(4, 2, 1), (2, 1, 2), (1, 2, 1), (2, 2, 2)]
    assert_equal_runs(folder, "moved", alone)
    resumed = [row["step"] for row in rows(folder / "moved" / "metrics.jsonl") if row.get("event") == "resumed"]
    assert len(resumed) == 3 and 3 <= resumed[0] < resumed[1] < resumed[2] < STEPS


@pytest.mark.parametrize("dies", [0, 1])
def test_when_a_process_is_killed_the_others_end_and_the_run_resumes(folder: Path, alone: str, dies: int) -> None:
    run = f"killed-{dies}"
    with started(folder, run, 2) as processes:
        processes.reach(8)
        victim = processes.each[dies].pid  # the supervisor, or its child
        if dies:
            victim = int(Path(f"/proc/{victim}/task/{victim}/children").read_text())
        os.kill(victim, signal.SIGKILL)
        began = time.monotonic()
        code, said = processes.end()[1 - dies]
    assert time.monotonic() - began < 60
    assert code == 4 and "run the same command on every host to resume" in said, said
    assert state(folder, run) == ("interrupted", 1)
    with started(folder, run, 2, words=("resume", str(folder / run), "--workers=1")) as processes:
        assert [code for code, _ in processes.end()] == [0, 0]
    assert_equal_runs(folder, run, alone)
    assert state(folder, run) == ("finished", 0)


def state(folder: Path, run: str) -> tuple[str, int]:
    """A run's state in `bertzoo runs`, and the command's exit code with --stalled."""
    (listed,) = [one for one in list_runs(str(folder)) if one.name == run]
    return listed.state, main(["runs", str(folder / run), "--stalled=60"])


def test_a_restart_of_two_processes_reads_the_programs_that_the_first_wrote(folder: Path) -> None:
    words = ["pretrain", str(folder / "tiny.toml"), "--workers=1", "--run.keep_programs=true"]
    words += ["--stages.0.steps=2", "--stages.1.steps=1"]
    metrics, programs, kept = folder / "kept" / "metrics.jsonl", folder / "kept" / "programs", []
    for misses in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAX_EXPLAIN_CACHE_MISSES", "true")
            patch.delenv("JAX_COMPILATION_CACHE_DIR")
            with started(folder, "kept", 2, fault="one_key:0", words=words) as processes:
                logs = [one.communicate(timeout=300)[1] for one in processes.each]
        assert [one.returncode for one in processes.each] == [0, 0], logs
        assert all(("MISS for 'jit_train_step'" in log) == misses for log in logs)
        saved = [row.get("saved_seconds", 0) for row in rows(metrics) if row.get("event") == "compiled"]
        assert all(seconds > 0 for seconds in saved) != misses and len(saved) == 2
        kept.append((sorted(programs.glob("jit_train_step-*")), losses(folder, "kept")))
        shutil.rmtree(folder / "kept" / "checkpoints")  # as a run that was preempted before its first checkpoint
        metrics.unlink()
    assert kept[0] == kept[1]


def test_a_missing_process_ends_the_others(folder: Path) -> None:
    where = [
        f"--distributed.coordinator=127.0.0.1:{free_port()}",
        "--distributed.processes=2",
        "--distributed.process=1",
    ]
    with started(folder, "refused", 1, [*where, "--distributed.start_timeout=5"]) as processes:
        ((code, said),) = processes.end()
    assert code == 4 and mentions(said, "process 1 of 2")
    assert not (folder / "refused").exists()


def test_two_processes_with_one_number_end_the_run(folder: Path) -> None:
    own = [(), (), ["--distributed.process=1"]]
    with started(folder, "doubled", 3, ["--distributed.start_timeout=10"], own) as processes:
        ended = processes.end()
    assert [code for code, _ in ended] == [4, 4, 4], ended
    assert all(mentions(message, "--distributed.process") for _, message in ended), ended


@pytest.mark.parametrize("option", ["--data.source=nowhere.txt", "--from=file:///nowhere.txt"])
def test_a_user_error_is_printed_once_per_process(option: str, folder: Path) -> None:
    with started(folder, "mistaken", 2, [option]) as processes:
        ended = processes.end()
    assert [code for code, _ in ended] == [2, 2], ended
    assert all("nowhere.txt" in said for _, said in ended) and ended[1][1].startswith("bertzoo: process 0: ")


@pytest.mark.parametrize(
    ("run", "own", "fault", "parts"),
    [
        ("counts", ["--distributed.processes=3"], None, ("process 1", 3, "process 0", 2, "--distributed.processes")),
        ("here", ["--run_dir=elsewhere"], "impatient:1", ("--run_dir=elsewhere", "process 0")),
        (
            "configs",
            ["--optimizer.learning_rate=0.5", "--seed=7"],
            None,
            ("seed: 0 -> 7", "optimizer.learning_rate: 0.01 -> 0.5"),
        ),
    ],
)
def test_processes_with_different_options_raise(
    folder: Path, tmp_path: Path, monkeypatch, run, own, fault, parts
) -> None:
    """Among them a run directory that the processes do not share."""
    monkeypatch.chdir(tmp_path)
    with started(folder, run, 2, (), [(), own], fault=fault) as processes:
        ended = processes.end()
    assert [code for code, _ in ended] == [4, 2] and mentions(ended[1][1], *parts), ended
    assert not (folder / run / "checkpoints").exists()


def test_two_processes_start_from_a_run_behind_a_url(folder: Path, alone: str, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    for count, run, origin in ((1, "from-one", ""), (2, "from-two", "file://")):
        with started(folder, run, count, [f"--from={origin}{folder / alone}"]) as processes:
            ended = processes.end()
        assert [code for code, _ in ended] == [0] * count, ended
    assert json.loads((folder / "from-two" / "run.json").read_text())["from"]["path"] == f"file://{folder / alone}"
    assert_equal_runs(folder, "from-two", "from-one")


def test_a_checkpoint_that_one_process_cannot_read_is_skipped_by_all(folder: Path, alone: str) -> None:
    with started(folder, "unread", 2) as processes:
        processes.reach(14)
        processes.each[0].send_signal(signal.SIGTERM)
        assert [code for code, _ in processes.end()] == [3, 3]
    before = sorted(int(path.name) for path in (folder / "unread" / "checkpoints").iterdir() if path.name.isdecimal())
    with started(folder, "unread", 2, fault="restore:1") as processes:
        ended = processes.end()
    assert [code for code, _ in ended] == [0, 0], ended
    (resumed,) = [row["step"] for row in rows(folder / "unread" / "metrics.jsonl") if row.get("event") == "resumed"]
    assert resumed == before[-2]
    assert_equal_runs(folder, "unread", alone)


def test_every_process_reports_a_full_disk(folder: Path) -> None:
    with started(folder, "full", 2, fault="save:0") as processes:
        ended = processes.end()
    assert [code for code, _ in ended] == [1, 1], ended
    first, second = (said for _, said in ended)
    assert first == second and mentions(first, "checkpoint 6", os.strerror(errno.ENOSPC))
