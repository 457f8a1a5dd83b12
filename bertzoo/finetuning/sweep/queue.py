"""Run the points of a sweep as processes, several side by side, and report how each ended."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

from bertzoo.core.child import start_python
from bertzoo.core.errors import Stopped
from bertzoo.train.signals import leave_closed_terminal, stop_signals

COMMAND = ("-m", "bertzoo")
_POLL = 0.1  # seconds between two checks of the processes
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class ProcessJob(Generic[Item]):
    """The arguments of one process, and the file for its output. `run_processes` passes `item` to callbacks."""

    item: Item
    arguments: Sequence[str]
    log: Path


@dataclass(frozen=True, kw_only=True)
class ProcessExit:
    """How a process ended. error: its last line of output if it failed."""

    code: int
    error: str = ""

    @property
    def stopped(self) -> bool:
        """Whether it stopped at a checkpoint, to be run again."""
        return self.code == Stopped.exit_code


def run_processes(
    jobs: Iterable[ProcessJob[Item]],
    environments: Sequence[Mapping[str, str]],
    ended: Callable[[Item, ProcessExit], None],
    ready: Callable[[Item], bool] = lambda item: True,
) -> None:
    """Run every job, one at a time in each of the environments, and call `ended` for each.

    A job that is not ready waits until others have ended; it is skipped if it is not ready when no other is running.
    SIGTERM, SIGINT or SIGHUP terminates the processes and raises KeyboardInterrupt; a second SIGINT kills them.
    """
    waiting = list(jobs)
    running: dict[int, tuple[ProcessJob[Item], subprocess.Popen]] = {}
    signals: list[int] = []
    rounds = 0  # how often signals were sent to the processes

    def record(number: int, _: FrameType | None) -> None:
        leave_closed_terminal()
        signals.append(number)

    usual = {number: signal.signal(number, record) for number in stop_signals()}
    try:
        while True:
            for slot, environment in enumerate(environments):
                if signals or slot in running or not (free := [job for job in waiting if ready(job.item)]):
                    continue
                waiting.remove(free[0])
                running[slot] = free[0], _start(free[0], environment)
            if not running:
                break
            time.sleep(_POLL)
            if signals and (not rounds or signals.count(signal.SIGINT) > 1):
                for _, process in running.values():
                    process.kill() if rounds else process.terminate()
                rounds += 1
            for slot, (job, process) in list(running.items()):
                if process.poll() is not None:
                    del running[slot]
                    ended(job.item, _exit(process.returncode, job.log))
    finally:
        for _, process in running.values():  # still running only if `ended` has raised
            process.terminate()
            process.wait()
        for number, handler in usual.items():
            signal.signal(number, handler)
    if signals:
        raise KeyboardInterrupt


def _start(job: ProcessJob, environment: Mapping[str, str]) -> subprocess.Popen:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("w", encoding="utf-8") as log:
        return start_python(
            [*COMMAND, *job.arguments],
            environment=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that Ctrl-C reaches it only through this process
        )


def _exit(code: int, log: Path) -> ProcessExit:
    if code == 0:
        return ProcessExit(code=code)
    text = ""
    with contextlib.suppress(OSError):
        text = log.read_text(encoding="utf-8", errors="replace")
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return ProcessExit(code=code, error=f"{last.removeprefix('bertzoo: ')} ({how}; {log})")
