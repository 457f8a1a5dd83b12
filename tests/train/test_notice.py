"""The metadata server's notice that the machine is about to be stopped, from a local server."""

import http.server
import threading
import time
from collections.abc import Iterator

import pytest
import toy
from messages import mentioning

from bertzoo.core.errors import Stopped
from bertzoo.train import loop, signals
from bertzoo.train.checkpoint import Checkpoints

QUIET = {"maintenance-event": "NONE", "preempted": "FALSE"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Start a server with these answers by name; it answers only requests with the documented header."""
    answers = dict(QUIET)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place, name = self.path.rsplit("/", 1)
            known = place == "/computeMetadata/v1/instance" and self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if known and name in answers else 404)
            self.end_headers()
            self.wfile.write(answers.get(name, "").encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{made.server_port}")
        yield answers
        made.shutdown()


@pytest.mark.parametrize(
    ("changed", "comes"),
    [
        ({}, False),
        ({"maintenance-event": "MIGRATE_ON_HOST_MAINTENANCE"}, False),  # the machine stays
        ({"maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE"}, True),
        ({"preempted": "TRUE"}, True),
    ],
)
def test_stop_notices_of_the_metadata_server(server: dict[str, str], changed: dict[str, str], comes: bool):
    server.update(changed)
    assert signals.stop_notices(signals.metadata_server() or "") == (changed.keys() if comes else set())


def test_an_unreachable_server_gives_no_notice():
    assert not signals.stop_notices("127.0.0.1:9")


def test_only_google_machines_have_a_metadata_server(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    for name, server in (("Google Compute Engine", "metadata.google.internal"), ("KVM", None)):
        (tmp_path / "product_name").write_text(name)
        monkeypatch.setattr(signals, "_PRODUCT", tmp_path / "product_name")
        assert signals.metadata_server() == server


def test_a_notice_saves_and_stops(server: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setattr(signals.MaintenanceWatch.__init__, "__defaults__", (0.05,))

    def batches(stage: int, row: int):
        for number, batch in enumerate(toy.batches(stage, row)):
            time.sleep(0.1)
            if number:
                server["maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
            yield batch

    said = mentioning(signals.NOTICE, f"{tmp_path}/")
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(Stopped, match=said):
        loop.run(toy.job(batches=batches, checkpoints=checkpoints))
    # The event is still present when the run restarts, and the run continues.
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.steps()
        loop.run(toy.job(checkpoints=checkpoints))
