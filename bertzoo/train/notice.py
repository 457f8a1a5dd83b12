"""Watch for Google Compute Engine's notice, sent before any signal, that this machine will stop soon."""

import contextlib
import http.client
import os
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

NOTICE = "a maintenance notice"
_PRODUCT = Path("/sys/class/dmi/id/product_name")
# Values of the metadata server's keys before a machine is stopped; live migration has another value.
_STOPPING = {"maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE", "preempted": "TRUE"}
_WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


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
    notices = set()
    for key, value in _STOPPING.items():
        request = urllib.request.Request(
            f"http://{server}/computeMetadata/v1/instance/{key}", headers={"Metadata-Flavor": "Google"}
        )
        with contextlib.suppress(OSError, http.client.HTTPException), _WITHOUT_PROXY.open(request, timeout=5) as reply:
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
