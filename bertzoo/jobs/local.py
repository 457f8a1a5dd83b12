"""Run commands of bertzoo as processes of this machine, several side by side, each with a device of its own."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from types import FrameType
from typing import Any

from bertzoo.core.child import start_program, start_python
from bertzoo.core.documents import parse_json
from bertzoo.core.errors import Stopped, UserError
from bertzoo.core.machine import machine_memory
from bertzoo.jobs.job import CommandJob
from bertzoo.train.signals import leave_closed_terminal, stop_signals

COMMAND = ("-m", "bertzoo")
_POLL = 0.1  # seconds between two checks of the processes
# A chip of a TPU may hold two devices; a process gets a whole chip.
_COUNT = """
import json, jax
devices = jax.local_devices()
chips = {tuple(getattr(device, "coords", ())) for device in devices}
print(json.dumps([jax.default_backend(), len(chips) if jax.default_backend() == "tpu" else len(devices)]))
"""
_VISIBLE = {"gpu": "CUDA_VISIBLE_DEVICES", "tpu": "TPU_VISIBLE_CHIPS"}  # ids that a process sees
Environment = Mapping[str, str]


def run_processes(
    jobs: Iterable[CommandJob],
    environments: Sequence[Environment],
    start: Callable[[CommandJob, Environment], subprocess.Popen],
    on_exit: Callable[[CommandJob, int, float], None],
    memory: Mapping[str, int],
    cores: int | None = None,
) -> None:
    """Run all jobs, as many at a time as `environments` has sets of variables and this machine has memory for.

    No two running jobs have the same set. Calls `on_exit` with the exit code and the seconds after each job. SIGTERM,
    SIGINT or SIGHUP terminates the processes and raises KeyboardInterrupt; a second SIGINT kills the processes.
    memory: bytes by job; empty if jobs run elsewhere. cores: of each job; None: they share all cores evenly.
    """
    waiting = list(jobs)
    available, processes = machine_memory()[1], min(len(waiting), len(environments))
    running: dict[int, tuple[CommandJob, subprocess.Popen, float]] = {}
    signals: list[int] = []
    rounds = 0  # how often signals were sent to the processes

    def record(number: int, _: FrameType | None) -> None:
        leave_closed_terminal()
        signals.append(number)

    handlers = {number: signal.signal(number, record) for number in stop_signals()}
    try:
        while True:
            for slot, environment in enumerate(environments):
                used = sum(memory.get(job.name, 0) for job, _, _ in running.values())
                if not waiting or signals or slot in running:
                    continue
                if not running or used + memory.get(waiting[0].name, 0) <= available:
                    job = waiting.pop(0)
                    running[slot] = job, start(job, environment), time.monotonic()
                    if memory and (cores or processes > 1):
                        _limit_cores(running[slot][1].pid, slot, cores, processes)
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
                    code = Stopped.exit_code if signals and process.returncode else process.returncode
                    on_exit(job, code, time.monotonic() - began)
    finally:
        for _, process, _ in running.values():  # still running only if `on_exit` has raised
            process.terminate()
            process.wait()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if signals:
        raise KeyboardInterrupt


def _limit_cores(process: int, slot: int, cores: int | None, processes: int) -> None:
    """Let the process in a slot of the `processes` that run at once use only its share of the cores, on Linux."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        count = cores or max(1, len(allowed) // processes)
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(process, {allowed[(slot * count + i) % len(allowed)] for i in range(count)})


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_machine(processes: int | None, cores: int | None, memory: float | None) -> None:
    """Raise UserError if this machine has fewer cores than `processes` of `cores` each, or less than `memory` GB."""
    if cores and cores * (processes or 1) > (count := _count_cores()):
        note = f" for each of {processes} processes" if processes else ""
        raise UserError(f"--cores={cores}{note} is more than this machine's {count}. Use fewer.")
    if memory and memory > (total := machine_memory()[0] / 1e9):
        raise UserError(f"--memory={memory:g} is more than this machine's {total:.1f} GB. Use less, or omit it.")


def start_command(
    arguments: Sequence[str],
    log: Path,
    output: Path | None = None,
    launcher: Sequence[str] = (),
    environment: Environment | None = None,
    stop: int = 0,
) -> subprocess.Popen:
    """Start `bertzoo ARGUMENTS`, which prints into the file `log`, with standard output into `output` if set.

    launcher: command that replaces `bertzoo`, for example to start it on other machines; `stop` is the signal that it
    receives instead of SIGTERM or SIGINT.
    """
    with contextlib.ExitStack() as files:
        streams = []
        for path in (log, output or log):
            path.parent.mkdir(parents=True, exist_ok=True)
            streams.append(files.enter_context(path.open("a" if streams and output is None else "w", encoding="utf-8")))
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": streams[1], "stderr": streams[0]}
        options["start_new_session"] = True  # so that Ctrl-C reaches it only through this process
        if launcher:
            return start_program([*launcher, *arguments], environment or {}, stop, **options)
        return start_python([*COMMAND, *arguments], environment=environment, **options)


def describe_exit(code: int, log: Path) -> str:
    """Return why a process failed: the last line of its log, its exit code or signal, and the log."""
    text = ""
    with contextlib.suppress(OSError):
        text = log.read_text(encoding="utf-8", errors="replace")
    message = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
    status = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{message.removeprefix('bertzoo: ')} ({status}; {log})"


def device_environments(processes: int | None, cores: int | None = None) -> list[Environment]:
    """Return, for each process, environment variables that give the process a device of its own; on a CPU, none.

    processes: None: one per device, but at most as many as the machine has `cores` for; on a CPU, as many as it has
    `cores` for, or one. `check_machine` checks both before. Raises UserError for fewer devices than processes.
    """
    platform, count = count_devices()
    most_by_cores = _count_cores() // cores if cores else None
    if platform == "cpu":
        return [{}] * (processes or most_by_cores or 1)
    most = count if platform in _VISIBLE else 1
    if (processes or 0) > most:
        raise UserError(
            f"--processes={processes} is more than the devices of this machine, {most} of the platform {platform}. Use "
            f"at most {most}, one per device."
        )
    if platform not in _VISIBLE:
        return [{}]
    variable, visible = _VISIBLE[platform], os.environ.get(_VISIBLE[platform], "")
    names = visible.split(",") if visible else map(str, range(count))
    bounds = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"}  # each chip is a slice of its own
    return [
        {variable: name, **(bounds if platform == "tpu" else {})}
        for name in list(names)[: processes or min(count, most_by_cores or count)]
    ]


def count_devices() -> tuple[str, int]:
    """Return JAX's platform and its number of devices, or of chips for a TPU, as a separate process counts them."""
    platform, count = query_jax(_COUNT)
    return platform, count


def query_jax(code: str) -> Any:
    """Run Python code in a separate process that has the devices; return the value that it prints as JSON."""
    with start_python(["-c", code], stdout=PIPE, stderr=PIPE, text=True) as process:
        output, errors = process.communicate()
    if process.returncode:
        message = next(iter(errors.strip().splitlines()[-1:]), f"exit code {process.returncode}")
        raise RuntimeError(f"JAX cannot use the devices of this machine: {message}. Correct the installation of JAX.")
    return parse_json(output.splitlines()[-1], object)
