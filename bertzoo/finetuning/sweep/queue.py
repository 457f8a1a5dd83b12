"""Points run as processes of their own, so many side by side, each ended in words."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

from bertzoo.core.errors import Stopped
from bertzoo.train.signals import leave_closed_terminal, stop_signals

COMMAND = (sys.executable, "-m", "bertzoo")
_POLL = 0.1  # seconds between two looks at the processes
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Job(Generic[Item]):
    """What one process does. log: all that it prints goes there."""

    item: Item
    arguments: Sequence[str]
    log: Path


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended. error: its last line, where it failed."""

    code: int
    error: str = ""

    @property
    def stopped(self) -> bool:
        """Whether it asks to be run again."""
        return self.code == Stopped.exit_code


def run(
    jobs: Iterable[Job[Item]],
    environments: Sequence[Mapping[str, str]],
    ended: Callable[[Item, Ended], None],
    ready: Callable[[Item], bool] = lambda item: True,
) -> None:
    """Run every job, in each of the environments one at a time, and tell of each when it has ended.

    One that is not ready waits until others have ended; it is left when none is at work and it still is not.
    SIGTERM, SIGINT or SIGHUP ends the processes as SIGTERM does; then KeyboardInterrupt is raised. A second SIGINT
    kills them.
    """
    waiting = list(jobs)
    running: dict[int, tuple[Job[Item], subprocess.Popen]] = {}
    asked: list[int] = []
    passed = 0

    def ask(number: int, _: FrameType | None) -> None:
        leave_closed_terminal()
        asked.append(number)

    usual = {number: signal.signal(number, ask) for number in stop_signals()}
    try:
        while True:
            for slot, environment in enumerate(environments):
                if asked or slot in running or not (free := [job for job in waiting if ready(job.item)]):
                    continue
                waiting.remove(free[0])
                running[slot] = free[0], _start(free[0], environment)
            if not running:
                break
            time.sleep(_POLL)
            if asked and (not passed or asked.count(signal.SIGINT) > 1):
                for _, process in running.values():
                    process.kill() if passed else process.terminate()
                passed += 1
            for slot, (job, process) in list(running.items()):
                if process.poll() is not None:
                    del running[slot]
                    ended(job.item, _end(process.returncode, job.log))
    finally:
        for _, process in running.values():  # `ended` has raised: nothing is left behind
            process.terminate()
            process.wait()
        for number, handler in usual.items():
            signal.signal(number, handler)
    if asked:
        raise KeyboardInterrupt


def _start(job: Job, environment: Mapping[str, str]) -> subprocess.Popen:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("w", encoding="utf-8") as log:
        return subprocess.Popen(
            [*COMMAND, *job.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,  # Ctrl-C reaches it once, from here
        )


def _end(code: int, log: Path) -> Ended:
    if code == 0:
        return Ended(code=code)
    text = ""
    with contextlib.suppress(OSError):
        text = log.read_text(encoding="utf-8", errors="replace")
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return Ended(code=code, error=f"{last.removeprefix('bertzoo: ')} ({how}; {log})")
