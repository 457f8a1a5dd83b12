"""Stop early: a first stop signal requests a save and a stop; a second one, over 1 s later, kills as usual."""

import errno
import os
import signal
import termios
import threading
import time
from types import FrameType
from typing import Any

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
