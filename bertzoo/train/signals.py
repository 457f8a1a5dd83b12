"""Stop a process early: by a stop signal, or because the process of another host is lost.

A command with several processes runs each as a child. If one is lost, JAX's coordination service aborts the others by
SIGABRT from a C++ thread. No Python code runs then, and a Python callback for lost processes crashes (std::bad_cast).
Only a parent can turn the abort into exit code 4 and a message. Measured with jax 0.10.2, two CPU processes and a
heartbeat timeout of 20 s: SIGKILL of process 0 aborted process 1 after 0.1 s. SIGKILL of process 1, or SIGSTOP of
either, aborted the other after 18 to 19 s. It made no difference whether the survivor computed, waited for a key or sat
in a collective.
"""

import errno
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

from bertzoo.core.child import start_python
from bertzoo.core.errors import HostLost, Stopped

_ECHO = 1.0  # seconds in which a second signal is a copy: Slurm signals a process and its parent, which forwards it


def stop_signals() -> list[signal.Signals]:
    """Return the signals that request a stop; not SIGHUP under nohup, because such a run shall outlive its terminal."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([] if ignored else [signal.SIGHUP])]


def leave_closed_terminal() -> None:
    """Redirect standard output and error to /dev/null if their terminal is gone, as writing would raise OSError.

    A terminal that still exists, as after `kill -HUP`, keeps the output.
    """
    for number in (1, 2):
        try:
            termios.tcgetattr(number)
        except termios.error as error:
            if error.args[0] == errno.EIO:  # files and pipes raise ENOTTY
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, number)
                os.close(null)


class StopRequest:
    """A context that stores the first stop signal's name in `name`; a second signal, over 1 s later, kills as usual.

    Handles no signals outside the main thread, which alone receives them.
    """

    def __init__(self):
        self.name: str | None = None
        self._time: float | None = None  # time of the first signal
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, self._handle) for number in stop_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_closed_terminal()  # before the next line of progress, which precedes the save
        if self._time is None:
            self.name, self._time = signal.Signals(number).name, time.monotonic()
        elif time.monotonic() - self._time > _ECHO:
            self._restore()
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        while self._handlers:
            number, handler = self._handlers.popitem()
            signal.signal(number, handler)


_PARENT = "BERTZOO_SUPERVISED_BY"  # the environment variable with the parent's process id
_KILLED = "it was killed from outside or the machine ran out of memory"
_CAUSES = {
    signal.SIGABRT: "JAX aborts a process when another one is lost, does not start in time, or has the same "
    "--distributed.process; every process must be started once, with its own number and the same coordinator",
    signal.SIGKILL: _KILLED,
    signal.SIGTERM: _KILLED,
}
_CRASH = "if it happens again, the cause is a crash of this program or a library, not a lost host"


def is_child() -> bool:
    """Return whether `supervise` has started this process."""
    return _PARENT in os.environ


def supervise(argv: Sequence[str], name: str) -> int:
    """Run `bertzoo argv` as a child, forward SIGTERM, SIGINT and SIGHUP, and return its exit code.

    If a signal ended the child, raises Stopped, with this process's `name`, if it had forwarded one, else HostLost.
    """
    children: list[subprocess.Popen] = []
    forwarded: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        forwarded.append(number)
        leave_closed_terminal()
        for child in children:
            child.send_signal(number)

    handlers = {number: signal.signal(number, forward) for number in stop_signals()}
    try:
        child = start_python(
            ["-m", "bertzoo", *argv],
            environment={_PARENT: str(os.getpid())},
            start_new_session=True,  # Ctrl-C reaches it once, from here
        )
        children.append(child)
        for number in forwarded:  # they came before there was a child
            child.send_signal(number)
        code = child.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if code >= 0:
        return code
    end = f"{name} was ended by {signal.Signals(-code).name}"
    if forwarded:
        raise Stopped(f"{end} after it received {signal.Signals(forwarded[0]).name}. Run the same command again.")
    raise HostLost(
        f"{end}: {_CAUSES.get(signal.Signals(-code), _CRASH)}. Look for the first error among the outputs of all "
        "processes, then run the same command on every host to resume."
    )


def exit_child(code: int) -> NoReturn:
    """Exit with a nonzero code and skip jax's shutdown, which would wait for the other processes and then abort."""
    from bertzoo.train import hosts

    hosts.leave_together()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
