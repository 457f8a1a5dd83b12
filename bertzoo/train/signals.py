"""A first SIGTERM or SIGINT asks the loop to save and stop; a second one, a moment later, acts at once."""

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ECHO = 1.0  # seconds within which it is the same again: Slurm signals a process and its parent, which passes it on


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
            self._usual = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def ask(self, name: str) -> None:
        """As a signal of that name would; the handlers stay, so that a first real one still only asks."""
        self.name = self.name or name

    def _note(self, number: int, _: FrameType | None) -> None:
        if self._noted is None:
            self.name, self._noted = signal.Signals(number).name, time.monotonic()
        elif time.monotonic() - self._noted > _ECHO:
            self._restore()
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        while self._usual:
            number, handler = self._usual.popitem()
            signal.signal(number, handler)
