"""A first SIGTERM, SIGINT or SIGHUP asks the loop to save and stop; a second one, a moment later, acts at once."""

import errno
import os
import signal
import termios
import threading
import time
from types import FrameType
from typing import Any

_ECHO = 1.0  # seconds within which it is the same again: Slurm signals a process and its parent, which passes it on


def stop_signals() -> list[signal.Signals]:
    """The signals that ask a run to stop; without SIGHUP under nohup, where a run outlives its terminal."""
    hears = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hears else [])]


def leave_closed_terminal() -> None:
    """Send standard output and error nowhere where their terminal is gone: any line would raise OSError.

    A terminal that is still there, as after `kill -HUP`, keeps its lines.
    """
    for number in (1, 2):
        try:
            termios.tcgetattr(number)
        except termios.error as error:
            if error.args[0] == errno.EIO:  # neither a file nor a pipe, which have ENOTTY
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)


class StopRequest:
    """A context within which the first signal is noted in `name` instead of killing; a later second one kills as usual.

    Python delivers signals to the main thread alone, so elsewhere it notes nothing.
    """

    def __init__(self):
        self.name: str | None = None
        self._noted: float | None = None  # when the first signal came
        self._usual: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._usual = {number: signal.signal(number, self._note) for number in stop_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def ask(self, name: str) -> None:
        """As a signal of that name would; the handlers stay, so that a first real one still only asks."""
        self.name = self.name or name

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_closed_terminal()  # before the next line of progress, which comes before the state is saved
        if self._noted is None:
            self.name, self._noted = signal.Signals(number).name, time.monotonic()
        elif time.monotonic() - self._noted > _ECHO:
            self._restore()
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        while self._usual:
            number, handler = self._usual.popitem()
            signal.signal(number, handler)
