"""Stop early: a first stop signal, or a notice of Google Compute Engine, requests a save and a stop.

A second signal, over 1 s later, kills as usual.
"""

import contextlib
import errno
import os
import signal
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_ECHO = 1.0  # seconds in which a second signal is a copy: Slurm signals a process and its parent, which forwards it
NOTICE = "a maintenance notice"
_PRODUCT = Path("/sys/class/dmi/id/product_name")
# Values of the metadata server's keys before a machine is stopped; live migration has another value.
_STOPPING = {"maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE", "preempted": "TRUE"}


def stop_signals() -> list[signal.Signals]:
    """Return the signals that request a stop.

    Leaves out SIGHUP under nohup, because such a run shall outlive its terminal.
    """
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

    def request(self, name: str) -> None:
        """Request a stop: set `name` if it is None.

        The request does not count as a first signal, so the next signal does not kill the process.
        """
        self.name = self.name or name

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


def metadata_server() -> str | None:
    """Return the host name of the metadata server, or None outside Google Compute Engine."""
    if host := os.environ.get("GCE_METADATA_HOST"):
        return host
    with contextlib.suppress(OSError):
        if _PRODUCT.read_text().startswith("Google"):
            return "metadata.google.internal"
    return None


def stop_notices(server: str) -> set[str]:
    """Return the metadata keys that announce a stop, or an empty set if the server does not answer."""
    import http.client  # here, because every command imports this module
    import urllib.request

    notices, without_proxy = set(), urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for key, value in _STOPPING.items():
        request = urllib.request.Request(
            f"http://{server}/computeMetadata/v1/instance/{key}", headers={"Metadata-Flavor": "Google"}
        )
        with contextlib.suppress(OSError, http.client.HTTPException), without_proxy.open(request, timeout=5) as reply:
            if reply.read().decode(errors="replace").strip() == value:
                notices.add(key)
    return notices


class MaintenanceWatch:
    """A context that calls `request_stop` once if the machine will stop soon; idle outside Google Compute Engine.

    interval: seconds between two requests to the metadata server.

    Ignores a maintenance event that was announced before the start. Such an event stays in the metadata for up to an
    hour, and has already stopped an earlier run.
    """

    def __init__(self, request_stop: Callable[[str], None], interval: float = 5):
        self._request_stop, self._interval, self._closed = request_stop, interval, threading.Event()

    def __enter__(self) -> "MaintenanceWatch":
        if server := metadata_server():
            threading.Thread(target=self._poll, args=(server,), name="maintenance", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def _poll(self, server: str) -> None:
        initial = stop_notices(server) - {"preempted"}
        while not self._closed.wait(self._interval):
            if stop_notices(server) - initial:
                return self._request_stop(NOTICE)
