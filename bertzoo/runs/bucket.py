"""Keep the small files of a run in a cloud bucket: write them to a local folder and upload each as a whole.

A bucket cannot append to a file. So the whole of `metrics.jsonl` is uploaded before every checkpoint, after every event
in it and every 30 seconds. A bucket has no locks either. So a process that opens a run writes a new id into
`.owner.json`, and before every save checks that the file still has this id. If two processes open the same run, the
first one stops at its next save.
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

from bertzoo.core.documents import parse_json
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import CONFIG, METRICS
from bertzoo.core.remote import RemoteFolder, scratch_directory
from bertzoo.data.tokenizers import tokenizer
from bertzoo.runs import provenance

_LOG = logging.getLogger(__name__)
OWNER = ".owner.json"
TRACKERS = "trackers.json"  # run ids of the experiment trackers
FILES = (
    CONFIG,
    provenance.RUN_JSON,
    METRICS,
    TRACKERS,
    *(f"{provenance.TOKENIZER}/{name}" for name in tokenizer.ALL_FILES),
)
_LOCAL = (".lock", "plans")  # never uploaded


class Bucket:
    """A run's folder in a bucket, and local copies of its small files in `directory`.

    `directory` is a temporary folder until `take` replaces it by `local`, a folder of this machine that outlives the
    process.
    """

    def __init__(self, url: str):
        self.folder = RemoteFolder.at(url)
        self.local = scratch_directory("runs", self.folder.url)  # persists from one process to the next
        temporary = tempfile.mkdtemp(prefix="bertzoo-")
        weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        self.directory = Path(temporary) / self.folder.url.rsplit("/", 1)[-1]
        self.directory.mkdir()
        self._sent: dict[str, tuple[int, int]] = {}
        self._mark = b""

    def fetch(self, names: Iterable[str] = FILES) -> None:
        """Download the named files into `directory`; delete local copies of files that the bucket lacks."""
        for name in names:
            path = self.directory / name
            if not self.folder.has_file(name):
                path.unlink(missing_ok=True)
                continue
            data = self.folder.read_bytes(name)
            # Keep local metrics that extend the bucket's: the last process could not upload them.
            if not (name == METRICS and path.is_file() and path.read_bytes().startswith(data)):
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)

    def take(self) -> str:
        """Make this process the run's owner, which .owner.json names; return the owner's id.

        From then on, `directory` is `local`.
        """
        self.directory = self.local
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.folder.has_file(FILES[0]):  # the local files belong to another run of this name
            for path in self.directory.iterdir():
                if path.name not in _LOCAL:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.fetch()
        owner = {"id": uuid.uuid4().hex, "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S %z")}
        self._mark = json.dumps(owner).encode()
        self.folder.write_bytes(OWNER, self._mark)
        return owner["id"]

    def owner(self) -> dict[str, Any]:
        """Return the contents of .owner.json (the owner's id, host and start), or {} if it is missing or damaged."""
        with contextlib.suppress(ValueError):
            if self.folder.has_file(OWNER):
                return parse_json(self.folder.read_bytes(OWNER), {"id": str, "host": str, "since": str})
        return {}

    def check_owner(self) -> None:
        """Raise UserError if another process has taken over the run, or if the run's folder was deleted."""
        if self.folder.has_file(OWNER) and self.folder.read_bytes(OWNER) == self._mark:
            return
        owner = self.owner()
        if not owner:
            raise UserError(
                f"{self.folder.url}/{OWNER} no longer names an owner: the run was deleted or damaged. Restore the "
                "run's folder and run the same command again."
            )
        raise UserError(
            f"{self.folder.url} was taken over by the process that began on {owner['host']} at {owner['since']}. This "
            "process stops and changes nothing there. Do not start a run twice at the same time."
        )

    def send(self, names: Iterable[str] | None = None) -> None:
        """Upload the named files, by default all that have changed since their last upload."""
        for name in self._changed() if names is None else names:
            self.folder.write_bytes(name, (self.directory / name).read_bytes())

    def _changed(self) -> Iterator[str]:
        for path in sorted(self.directory.rglob("*")):
            name = str(path.relative_to(self.directory))
            if not path.is_file() or name.split("/")[0] in _LOCAL or name.endswith(".tmp"):
                continue
            status = path.stat()
            if self._sent.get(name) != (state := (status.st_size, status.st_mtime_ns)):
                yield name
                self._sent[name] = state

    def before_a_save(self) -> None:
        """Upload changed files before a checkpoint is saved; raises UserError if another process owns the run."""
        self.check_owner()
        self.send()


class Sender:
    """A reporter that uploads a run's changed files after every event and at intervals of 30 seconds or more."""

    def __init__(self, bucket: Bucket):
        self._bucket, self._due = bucket, 0.0

    def __call__(self, record: dict[str, Any]) -> None:
        if "event" in record or time.monotonic() >= self._due:
            self._send()

    def close(self) -> None:
        self._send()

    def _send(self) -> None:
        """Upload changed files; log a failure instead of raising it, as a brief network loss must not end the run."""
        start = time.monotonic()
        try:
            self._bucket.check_owner()
            self._bucket.send()
        except UserError as error:
            _LOG.warning("%s (the latest metrics are in %s)", error, self._bucket.directory)
        end = time.monotonic()
        self._due = end + max(30, 20 * (end - start))  # uploads take at most 1/20 of the time
