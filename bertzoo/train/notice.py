"""Google Compute Engine's word that this machine is about to be taken away, which comes before any signal does."""

import contextlib
import http.client
import os
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

NOTICE = "a maintenance notice"
_PRODUCT = Path("/sys/class/dmi/id/product_name")
# What the metadata server says of a machine that is about to be stopped; one that is migrated stays.
_GOES = {"maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE", "preempted": "TRUE"}
_PLAIN = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def metadata_server() -> str | None:
    """Its address; None where this is no machine of Google's."""
    if host := os.environ.get("GCE_METADATA_HOST"):
        return host
    with contextlib.suppress(OSError):
        if _PRODUCT.read_text().startswith("Google"):
            return "metadata.google.internal"
    return None


def comes(server: str) -> set[str]:
    """Which of its words say that the machine is about to be taken away; none where the server does not answer."""
    found = set()
    for name, word in _GOES.items():
        request = urllib.request.Request(
            f"http://{server}/computeMetadata/v1/instance/{name}", headers={"Metadata-Flavor": "Google"}
        )
        with contextlib.suppress(OSError, http.client.HTTPException), _PLAIN.open(request, timeout=5) as answer:
            if answer.read().decode(errors="replace").strip() == word:
                found.add(name)
    return found


class Watch:
    """A context within which `tell` is called once when the machine is about to be taken away; elsewhere it is idle.

    A maintenance event stands for up to an hour: one that stood at the beginning has stopped a run already.
    """

    def __init__(self, tell: Callable[[str], None], every: float = 5):
        self._tell, self._every, self._over = tell, every, threading.Event()

    def __enter__(self) -> "Watch":
        if server := metadata_server():
            threading.Thread(target=self._look, args=(server,), name="maintenance", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _look(self, server: str) -> None:
        before = comes(server) - {"preempted"}
        while not self._over.wait(self._every):
            if comes(server) - before:
                return self._tell(NOTICE)
