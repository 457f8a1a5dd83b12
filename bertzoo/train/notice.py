"""Google Compute Engine's word that this machine is about to be taken away, which comes before any signal does."""

import contextlib
import os
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

NOTICE = "a maintenance notice"
_PRODUCT = Path("/sys/class/dmi/id/product_name")
# What the metadata server says of a machine that stays; a preempted one is about to be stopped.
_STAYS = {"maintenance-event": "NONE", "preempted": "FALSE"}


def metadata_server() -> str | None:
    """Its address; None where this is no machine of Google's."""
    if host := os.environ.get("GCE_METADATA_HOST"):
        return host
    with contextlib.suppress(OSError):
        if _PRODUCT.read_text().startswith("Google"):
            return "metadata.google.internal"
    return None


def comes(server: str) -> bool:
    """Whether the machine is about to be taken away; False too where the server does not answer."""
    for name, usual in _STAYS.items():
        request = urllib.request.Request(
            f"http://{server}/computeMetadata/v1/instance/{name}", headers={"Metadata-Flavor": "Google"}
        )
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5) as answer:
            if answer.read().decode().strip() not in (usual, ""):
                return True
    return False


class Watch:
    """A context within which `tell` is called once when the machine is about to be taken away; elsewhere it is idle."""

    def __init__(self, tell: Callable[[str], None], every: float = 5):
        self._tell, self._every, self._over = tell, every, threading.Event()

    def __enter__(self) -> "Watch":
        if server := metadata_server():
            threading.Thread(target=self._look, args=(server,), name="maintenance", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _look(self, server: str) -> None:
        while not self._over.wait(self._every):
            if comes(server):
                return self._tell(NOTICE)
