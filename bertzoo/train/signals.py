"""A first SIGTERM, SIGINT or SIGHUP asks the loop to save and stop; a second one, a moment later, acts at once."""

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

_ECHO = 1.0  # seconds within which it is the same again: Slurm signals a process and its parent, which passes it on


def stop_signals() -> list[signal.Signals]:
    """The signals that ask a run to stop; without SIGHUP under nohup, where a run outlives its terminal."""
    hears = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hears else [])]


class StopRequest:
    """A context within which the first signal is noted in `name` instead of killing; a later second one kills as usual.

    Python delivers signals to the main thread alone, so elsewhere it notes nothing.
    """

    def __init__(self):
        self.name: str | None = None
        self._noted: float | None = None  # when the first signal came
        self._usual: dict[int, Any] = {}
        self._terminals: list[int] = []  # of standard output and error, those that a closed terminal takes along

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._terminals = [number for number in (1, 2) if os.isatty(number)]
            self._usual = {number: signal.signal(number, self._note) for number in stop_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def ask(self, name: str) -> None:
        """As a signal of that name would; the handlers stay, so that a first real one still only asks."""
        self.name = self.name or name

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP and self._terminals:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for terminal in self._terminals:
                os.dup2(nowhere, terminal)  # a line of progress would otherwise fail before the state is saved
            self._terminals = []
        if self._noted is None:
            self.name, self._noted = signal.Signals(number).name, time.monotonic()
        elif time.monotonic() - self._noted > _ECHO:
            self._restore()
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        while self._usual:
            number, handler = self._usual.popitem()
            signal.signal(number, handler)
