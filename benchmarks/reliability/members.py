"""Faults of one member of a run of two processes, started by launch/local_multi.sh: the third part of `attack`."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.reliability import kills

STEP = 12  # after which a member fails; a checkpoint every 6 steps
OPTIONS = ["--stages.1.steps=24", "--run.save_every=6", "--workers=1", "--distributed.heartbeat_timeout=30"]
LAUNCHER = ["--devices-per-process=1", "2", "tiny.toml", "--run_dir=out", *OPTIONS]
SLOW = (0.4, 0.1)  # seconds that the slowed member stands still and runs, in turns
Fault = Callable[[psutil.Process], None]


def reach(directory: Path) -> None:
    """Wait until the run has logged STEP; raises TimeoutError if that takes more than `kills.PATIENCE` seconds."""
    for _ in range(int(kills.PATIENCE / 0.1)):
        with suppress(FileNotFoundError):
            if any(json.loads(line).get("step", 0) >= STEP for line in _lines(directory)):
                return
        time.sleep(0.1)
    raise TimeoutError(f"{directory}: the run did not reach step {STEP} in {kills.PATIENCE} seconds")


def _lines(directory: Path) -> list[str]:
    return [line for line in (directory / "out" / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]


def member() -> psutil.Process:
    """The process that trains as process 1: the youngest of those with its number."""
    mine = [process for process in kills.descendants() if "--distributed.process=1" in process.cmdline()]
    return max(mine, key=lambda process: process.create_time())


def slow(process: psutil.Process) -> None:
    """Stop and continue a process in turns, until it has ended."""
    with suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            process.suspend()
            time.sleep(SLOW[0])
            process.resume()
            time.sleep(SLOW[1])


FAULTS: dict[str, Fault] = {
    "none": lambda process: None,
    "killed": psutil.Process.kill,
    "stopped": psutil.Process.suspend,
    "slowed": slow,
}


def attack_members(inputs: Path, folder: Path, shim: Path) -> Iterator[dict[str, Any]]:
    """A row for each fault: seconds until the launcher ended, and whether the run then had the same parameters."""
    command, expected = [str(kills.ROOT / "launch" / "local_multi.sh"), *LAUNCHER], {}
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for name, fault in FAULTS.items():
        directory, start = folder / name / "work", [0.0]
        shutil.rmtree(directory.parent, ignore_errors=True)
        shutil.copytree(inputs, directory)

        def disturb(directory: Path, start: list[float] = start, fault: Fault = fault) -> None:
            reach(directory)
            start[0] = time.monotonic()
            fault(member())

        ending = kills.run(command, directory, shim, disturb=disturb)
        seconds, code = time.monotonic() - start[0], ending.code
        faults = list(ending.faults(None if name in ("killed", "stopped") else 0))
        if name in ("killed", "stopped") and code == 0:
            faults.append(f"the launcher ended with 0 although process 1 was {name}")
        if code:
            faults += kills.run(command, directory, shim).faults(0)
        expected = expected or kills.contents(directory)
        faults += kills.differences(expected, directory)
        yield {
            "process 1 of 2": name,
            "seconds from then until the launcher ended": round(seconds),
            "its exit code": code,
            "the same command resumed it": bool(code),
            "faults": len(faults),
            "met": not faults,
            "details": faults,
        }
