"""A first SIGTERM or SIGINT asks the loop to save and stop; a second one acts at once."""

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """A context within which the first signal is noted in `name` instead of killing; then the usual handlers return.

    Python delivers signals to the main thread alone, so elsewhere it notes nothing.
    """

    def __init__(self):
        self.name: str | None = None
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
        self.name = signal.Signals(number).name
        self._restore()

    def _restore(self) -> None:
        while self._usual:
            number, handler = self._usual.popitem()
            signal.signal(number, handler)
