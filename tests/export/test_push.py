"""`convert --push`: one commit to a Hub that stands in for Hugging Face's, and no request without the option."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from messages import mentions
from zoo import CASES, pretrained

from bertzoo.cli import main as cli
from bertzoo.runs import load_model


class Hub(ThreadingHTTPServer):
    """Answers the requests of a commit of small files; `closed` denies writing."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.requests: list[tuple[str, Any, list]] = []
        self.closed = False


class Answer(BaseHTTPRequestHandler):
    server: Hub  # type: ignore[assignment]

    def log_message(self, *_):
        pass

    def do_GET(self):
        revision = self.path.startswith("/api/models/me/tiny/revision/")  # huggingface_hub before 1.0 asks for it
        known = self.path == "/api/whoami-v2" or revision
        self.answer({"id": "me/tiny"} if revision else {"name": "me", "type": "user"}, [], 200 if known else 403)

    def do_POST(self):
        lines = [json.loads(line) for line in self.rfile.read(int(self.headers["Content-Length"])).splitlines()]
        if self.server.closed:
            self.answer({"error": "Forbidden"}, lines, 403)
        elif self.path == "/api/repos/create":
            self.answer({"url": f"http://{self.headers['Host']}/me/tiny"}, lines)
        elif self.path == "/api/models/me/tiny/preupload/main":
            files = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in lines[0]["files"]]
            self.answer({"files": files}, lines)
        else:
            self.answer(
                {"commitUrl": f"http://{self.headers['Host']}/me/tiny/commit/1", "commitOid": "1", "success": True},
                lines,
            )

    def answer(self, body: dict, lines: list, status: int = 200):
        self.server.requests.append((self.path, self.headers, lines))
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        yield server
        server.shutdown()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    load_model.write_model(pretrained(*CASES["squeezebert"]), tmp_path / "model")
    return tmp_path / "model"


def test_a_push_commits_the_directory_with_its_card(hub: Hub, model: Path, tmp_path: Path, capsys):
    exported = tmp_path / "exported"
    words = ["convert", str(model), str(exported), "--to=huggingface"]
    assert cli.main(words) == 0 and not hub.requests  # nothing is pushed without the option
    assert cli.main([*words, "--push=me/tiny"]) == 0
    assert f":{hub.server_port}/me/tiny\n" in capsys.readouterr().out
    paths = [path for path, _, _ in hub.requests]
    assert paths[0] == "/api/whoami-v2" and len([path for path in paths if "/commit/" in path]) == 1
    assert all(headers["Authorization"] == "Bearer hf_secret" for _, headers, _ in hub.requests)
    (created,) = [lines[0] for path, _, lines in hub.requests if path == "/api/repos/create"]
    assert created["name"] == "tiny" and (created.get("private") or created.get("visibility") == "private")
    (commit,) = [lines for path, _, lines in hub.requests if "/commit/" in path]
    files = {line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in commit[1:]}
    assert files.keys() == {path.name for path in exported.iterdir()}
    card = files.pop("README.md").decode()
    assert 'from_pretrained("me/tiny")' in card and card.startswith("---\n")
    assert all((exported / name).read_bytes() == content for name, content in files.items())


@pytest.mark.parametrize(
    ("options", "token", "closed", "parts"),
    [
        (("--to=huggingface", "--push=me/tiny"), "", False, ("--push=me/tiny", "hf auth login", "HF_TOKEN")),
        (("--to=huggingface", "--push=tiny"), "hf_secret", False, ("--push=tiny", "ORG/NAME")),
        (("--to=bertzoo", "--push=me/tiny"), "hf_secret", False, ("--push", "--to=bertzoo")),
        (("--to=huggingface", "--push=me/tiny"), "hf_secret", True, ("hf://me/tiny", "written", "403")),
    ],
)
def test_a_push_that_cannot_be_raises_one_error(
    hub, model, tmp_path, monkeypatch, capsys, options, token, closed, parts
):
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "nowhere"))
    hub.closed = closed
    assert cli.main(["convert", str(model), str(tmp_path / "exported"), *options]) == 2
    err = capsys.readouterr().err
    assert mentions(err, *parts) and "hf_secret" not in err
    assert (tmp_path / "exported").exists() == closed  # else the error comes before the conversion
