"""Run bertzoo commands as processes, several side by side, and report how each ended."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

from bertzoo.core.child import start_program, start_python
from bertzoo.core.errors import Stopped
from bertzoo.train.signals import leave_closed_terminal, stop_signals

COMMAND = ("-m", "bertzoo")
_POLL = 0.1  # seconds between two checks of the processes
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class ProcessJob(Generic[Item]):
    """A process to run: `bertzoo ARGUMENTS`.

    item: the caller's label of the job.
    log: file for what the process prints.
    output: file for standard output alone, which appears on success; None: `log`.
    launcher: command that replaces `bertzoo`, for example to start it on other machines.
    """

    item: Item
    arguments: Sequence[str]
    log: Path
    output: Path | None = None
    launcher: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ProcessExit:
    """The end of a process.

    code: exit code, negative for a signal.
    error: the last line of the log if the process failed.
    seconds: its running time.
    """

    code: int
    error: str = ""
    seconds: float = 0.0

    @property
    def stopped(self) -> bool:
        """Whether the process saved a checkpoint and stopped early; the same command resumes it."""
        return self.code == Stopped.exit_code


def run_processes(
    jobs: Iterable[ProcessJob[Item]],
    environments: Sequence[Mapping[str, str]],
    ended: Callable[[Item, ProcessExit], None],
) -> None:
    """Run all jobs, as many at a time as `environments` has sets of variables.

    No two running jobs have the same set. Calls `ended` after each job. SIGTERM, SIGINT or SIGHUP terminates the
    processes and raises KeyboardInterrupt; a second SIGINT kills the processes.
    """
    waiting = list(jobs)
    running: dict[int, tuple[ProcessJob[Item], subprocess.Popen, float]] = {}
    signals: list[int] = []
    rounds = 0  # how often signals were sent to the processes

    def record(number: int, _: FrameType | None) -> None:
        leave_closed_terminal()
        signals.append(number)

    usual = {number: signal.signal(number, record) for number in stop_signals()}
    try:
        while True:
            for slot, environment in enumerate(environments):
                if waiting and not signals and slot not in running:
                    job = waiting.pop(0)
                    running[slot] = job, _start(job, environment), time.monotonic()
            if not running:
                break
            time.sleep(_POLL)
            if signals and (not rounds or signals.count(signal.SIGINT) > 1):
                for _, process, _ in running.values():
                    process.kill() if rounds else process.terminate()
                rounds += 1
            for slot, (job, process, began) in list(running.items()):
                if process.poll() is not None:
                    del running[slot]
                    if job.output is not None and process.returncode == 0:
                        _unfinished(job.output).replace(job.output)
                    ended(job.item, replace(_exit(process.returncode, job.log), seconds=time.monotonic() - began))
    finally:
        for _, process, _ in running.values():  # still running only if `ended` has raised
            process.terminate()
            process.wait()
        for number, handler in usual.items():
            signal.signal(number, handler)
    if signals:
        raise KeyboardInterrupt


def _start(job: ProcessJob, environment: Mapping[str, str]) -> subprocess.Popen:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as files:
        log = files.enter_context(job.log.open("w", encoding="utf-8"))
        output = log
        if job.output is not None:
            job.output.parent.mkdir(parents=True, exist_ok=True)
            output = files.enter_context(_unfinished(job.output).open("w", encoding="utf-8"))
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": log}
        options["start_new_session"] = True  # so that Ctrl-C reaches it only through this process
        if job.launcher:
            return start_program([*job.launcher, *job.arguments], environment, **options)
        return start_python([*COMMAND, *job.arguments], environment=environment, **options)


def _unfinished(output: Path) -> Path:
    return output.with_name(f"{output.name}.tmp")


def _exit(code: int, log: Path) -> ProcessExit:
    if code == 0:
        return ProcessExit(code=code)
    text = ""
    with contextlib.suppress(OSError):
        text = log.read_text(encoding="utf-8", errors="replace")
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return ProcessExit(code=code, error=f"{last.removeprefix('bertzoo: ')} ({how}; {log})")
