"""The small files of a run in a bucket: read and written in a folder of this machine, and sent there whole.

An object cannot be appended to and no lock outlives its writer there. So `metrics.jsonl` is sent anew before every
checkpoint, after events and now and then; and a run that begins takes the place over by a mark of its own, which it
looks for before everything that it saves: of two, the later one goes on.
"""

import contextlib
import json
import logging
import shutil
import socket
import tempfile
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bertzoo.core.errors import UserError
from bertzoo.data.corpus.remote import Folder, workplace
from bertzoo.data.tokenizers import tokenizer
from bertzoo.runs import facts

_LOG = logging.getLogger(__name__)
OWNER = ".owner.json"
METRICS = "metrics.jsonl"
FILES = ("config.toml", facts.NAME, METRICS, *(f"{facts.TOKENIZER}/{name}" for name in tokenizer.ALL_FILES))
_LOCAL = (".lock", "plans")  # of this machine alone
_SECONDS = 30  # between two uploads that nothing asks for
_SHARE = 20  # an upload's time, and at least so many times that without one


class Mirror:
    """A run's folder in a bucket and its files here: a folder that goes with this object until `hold` is called."""

    def __init__(self, url: str):
        self.folder = Folder.at(url)
        self.kept = workplace(
            "runs", self.folder.url
        )  # what this machine keeps of the run from one process to the next
        temporary = tempfile.mkdtemp(prefix="bertzoo-")
        weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        self.directory = Path(temporary) / self.folder.url.rsplit("/", 1)[-1]
        self.directory.mkdir()
        self._sent: dict[str, tuple[int, int]] = {}
        self._mark = b""

    def fetch(self, names: Iterable[str] = FILES) -> None:
        """Makes the small files here those of the bucket."""
        for name in names:
            here = self.directory / name
            if not self.folder.has(name):
                here.unlink(missing_ok=True)
                continue
            data = self.folder.read(name)
            # What could not be sent before a process ended is not lost to the next one here.
            if not (name == METRICS and here.is_file() and here.read_bytes().startswith(data)):
                here.parent.mkdir(exist_ok=True)
                here.write_bytes(data)

    def hold(self) -> str:
        """From now on this process writes the run, in the folder that this machine keeps; its mark there."""
        self.directory = self.kept
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.folder.has(FILES[0]):  # another run had this name
            for path in self.directory.iterdir():
                if path.name not in _LOCAL:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.fetch()
        owner = {"id": uuid.uuid4().hex, "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S %z")}
        self._mark = json.dumps(owner).encode()
        self.folder.write(OWNER, self._mark)
        return owner["id"]

    def owner(self) -> dict[str, Any]:
        """Whose the run is; empty where it is nobody's yet."""
        with contextlib.suppress(ValueError):
            return json.loads(self.folder.read(OWNER)) if self.folder.has(OWNER) else {}
        return {}

    def check(self) -> None:
        """Raises UserError unless the run is still this process's."""
        if self.folder.has(OWNER) and self.folder.read(OWNER) == self._mark:
            return
        owner = self.owner()
        by = f"by the process that began on {owner['host']} at {owner['since']}" if owner else "or deleted"
        raise UserError(f"{self.folder.url} was taken over {by}; this process leaves it as it is and stops")

    def send(self, names: Iterable[str] | None = None) -> None:
        """Writes these files to the bucket, or whatever has changed here since it was sent."""
        for name in self._changed() if names is None else names:
            self.folder.write(name, (self.directory / name).read_bytes())

    def _changed(self) -> Iterator[str]:
        for path in sorted(self.directory.rglob("*")):
            name = str(path.relative_to(self.directory))
            if not path.is_file() or name.split("/")[0] in _LOCAL or name.endswith(".tmp"):
                continue
            facts = path.stat()
            if self._sent.get(name) != (state := (facts.st_size, facts.st_mtime_ns)):
                yield name
                self._sent[name] = state

    def before_a_save(self) -> None:
        """Raises UserError where the run is another's by now; else no checkpoint is there before its metrics."""
        self.check()
        self.send()


class Sender:
    """A reporter that sends the files the others write."""

    def __init__(self, mirror: Mirror):
        self._mirror, self._due = mirror, 0.0

    def __call__(self, record: dict[str, Any]) -> None:
        if "event" in record or time.monotonic() >= self._due:
            self._send()

    def close(self) -> None:
        self._send()

    def _send(self) -> None:
        """A network that is away for a while does not end a run; where it stays away, saving does."""
        begun = time.monotonic()
        try:
            self._mirror.check()
            self._mirror.send()
        except UserError as error:
            _LOG.warning("%s (the latest figures are in %s)", error, self._mirror.directory)
        took = time.monotonic() - begun
        self._due = time.monotonic() + max(_SECONDS, _SHARE * took)
