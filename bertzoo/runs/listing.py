"""List the runs in a folder or a bucket, each with its state, from config.toml, metrics.jsonl and the lock alone."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertzoo.core import atomic, kinds
from bertzoo.core.documents import fitting, parse_toml
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import CONFIG, METRICS
from bertzoo.core.remote import remote_errors
from bertzoo.runs.report import Line, read_lines

QUIET = 600  # seconds after which a run in a bucket counts as interrupted
State = Literal["running", "finished", "stopped", "failed", "interrupted", "damaged"]
_ENDS: dict[str, State] = {"finished": "finished", "stopped": "stopped", "non_finite": "failed"}
_CONFIG = {"stages?": [{"steps": int}]}


class ListedRun(NamedTuple):
    """A run. name: its path below the listed folder. step: the newest one; of several seeds, the newest seed's.

    steps: of the whole run, if its config says so. loss: in nats. seen: time of the newest file, in Unix seconds.
    """

    name: str
    kind: str
    state: State
    step: int | None
    steps: int | None
    loss: float | None
    seen: float

    def alert(self, quiet: float) -> str | None:
        """Return why the run needs a person, or None: its state, or "stalled" after `quiet` seconds."""
        if self.state in ("failed", "interrupted", "damaged"):
            return self.state
        return "stalled" if self.state == "running" and time.time() - self.seen > quiet else None


def list_runs(folder: str) -> list[ListedRun]:
    """Return the runs below a folder or URL, the one seen last at the end; raises UserError without the folder."""
    import fsspec

    with remote_errors(folder):
        system, root = fsspec.url_to_fs(folder)
        system.invalidate_cache()
        if not system.isdir(root):
            raise UserError(f"{folder} is not a folder. Name a folder or bucket that holds runs.")
        names = {run: run[len(root) :].strip("/") or run.rpartition("/")[2] for run in _runs(system, root, depth=4)}
        return sorted((_read(system, run, name) for run, name in names.items()), key=lambda run: run.seen)


def _runs(system: Any, folder: str, depth: int) -> Iterator[str]:
    """Yield the paths of the runs below a folder; does not look for runs inside of runs."""
    inside = {entry["name"]: entry["type"] for entry in system.ls(folder, detail=True)}
    if inside.get(f"{folder}/{CONFIG}") == "file":
        yield folder
    elif depth:
        for name in sorted(name for name, kind in inside.items() if kind == "directory"):
            yield from _runs(system, name, depth - 1)


def _read(system: Any, run: str, name: str) -> ListedRun:
    """Read a run; one whose config or log is damaged has the state "damaged", and does not hide the others."""
    logs = [path for stars in ("", "*/", "*/*/") for path in system.glob(f"{run}/{stars}{METRICS}")]
    times = {path: system.modified(path).timestamp() for path in logs}
    seen = max([system.modified(f"{run}/{CONFIG}").timestamp(), *times.values()])
    try:
        table = fitting(parse_toml(system.cat_file(f"{run}/{CONFIG}")), _CONFIG)
        kind = kinds.kind_of(table)
        lines = read_lines(system.cat_file(max(logs, key=times.__getitem__))) if logs else []
    except (UserError, ValueError, OSError):
        return ListedRun(name, "", "damaged", None, None, None, seen)
    ends = [line for line in lines if line.get("event") in _ENDS or line.get("event") == "resumed"]
    losses = [line for line in lines if line.get("loss") is not None and math.isfinite(line["loss"])]
    heldout = [line for line in losses if line.get("split") == "heldout"]
    steps = sum(stage["steps"] for stage in table.get("stages", ()))
    return ListedRun(
        name=name,
        kind=kind.name,
        state=_state(Path(run) if "file" in system.protocol else None, kind, ends, seen),
        step=lines[-1]["step"] if lines else None,
        steps=steps or None,
        loss=(heldout or losses)[-1]["loss"] if losses else None,
        seen=seen,
    )


def _state(run: Path | None, kind: kinds.Kind, ends: list[Line], seen: float) -> State:
    """Return a run's state. run: None in a bucket."""
    end = _ENDS.get(ends[-1]["event"]) if ends else None
    if kind.model is not None and end in (None, "finished"):  # one of several training runs may have finished
        end = "finished" if run is not None and kind.is_finished(run) else None
    if run is None:
        running = end is None and time.time() - seen < QUIET
    else:
        running = end != "finished" and atomic.is_held(run / atomic.NAME)
    return "running" if running else end or "interrupted"
