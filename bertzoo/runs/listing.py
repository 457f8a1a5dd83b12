"""List the runs in a folder or a bucket, each with its state, from config.toml, metrics.jsonl and the lock alone."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertzoo.core import kinds, lock
from bertzoo.core.documents import DocumentError, parse_json, parse_toml
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import CONFIG, METRICS
from bertzoo.core.remote import remote_errors

DEPTH = 4  # levels of folders that are searched
QUIET = 600  # seconds after which a run in a bucket counts as interrupted
State = Literal["running", "finished", "stopped", "paused", "failed", "interrupted"]
_ENDS: dict[str, State] = {"finished": "finished", "stopped": "stopped", "paused": "paused", "non_finite": "failed"}
_LINE = {"step": int, "event?": str, "split?": str, "loss?": float | int | None}


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


def list_runs(folder: str) -> list[ListedRun]:
    """Return the runs below a folder or URL, the one seen last at the end; raises UserError without the folder."""
    import fsspec

    with remote_errors(folder):
        system, root = fsspec.url_to_fs(folder)
        system.invalidate_cache()
        if not system.isdir(root):
            raise UserError(f"{folder} is not a folder. Name a folder or bucket that holds runs.")
        found = (_read(system, run, run[len(root) :].strip("/")) for run in _runs(system, root, DEPTH))
        return sorted(found, key=lambda run: run.seen)


def _runs(system: Any, folder: str, depth: int) -> Iterator[str]:
    """Yield the paths of the runs below a folder; does not look for runs inside of runs."""
    inside = {entry["name"]: entry["type"] for entry in system.ls(folder, detail=True)}
    if f"{folder}/{CONFIG}" in inside:
        yield folder
    elif depth:
        for name in sorted(name for name, kind in inside.items() if kind == "directory"):
            yield from _runs(system, name, depth - 1)


def _read(system: Any, run: str, name: str) -> ListedRun:
    try:
        table = parse_toml(system.cat_file(f"{run}/{CONFIG}"))
        kind = kinds.kind_of(table)
    except (UserError, ValueError) as error:
        raise UserError(f"{run}/{CONFIG} is damaged: {error}. Remove the folder, or restore a copy.") from error
    logs = [path for stars in ("", "*/", "*/*/") for path in system.glob(f"{run}/{stars}{METRICS}")]
    times = {path: system.modified(path).timestamp() for path in [*logs, f"{run}/{CONFIG}"]}
    lines = _lines(system.cat_file(max(logs, key=times.__getitem__))) if logs else []
    ends = [line for line in lines if line.get("event") in _ENDS or line.get("event") == "resumed"]
    losses = [line for line in lines if line.get("loss") is not None]
    heldout = [line for line in losses if line["split"] == "heldout"]
    steps = sum(stage.get("steps", 0) for stage in table.get("stages", ()))
    here = Path(run) if "file" in system.protocol else None
    return ListedRun(
        name=name or run.rpartition("/")[2],
        kind=kind.name,
        state=_state(here, kind, ends, max(times.values())),
        step=lines[-1]["step"] if lines else None,
        steps=steps or None,
        loss=(heldout or losses)[-1]["loss"] if losses else None,
        seen=max(times.values()),
    )


def _state(run: Path | None, kind: kinds.Kind, ends: list[dict[str, Any]], seen: float) -> State:
    """Return a run's state. run: None in a bucket."""
    end = _ENDS.get(ends[-1]["event"]) if ends else None
    if kind.model is not None and end in (None, "finished"):  # one of several training runs may have finished
        end = "finished" if run is not None and kind.is_finished(run) else None
    if run is None:
        running = end is None and time.time() - seen < QUIET
    else:
        running = end != "finished" and lock.is_held(run / lock.NAME)
    return "running" if running else end or "interrupted"


def _lines(log: bytes) -> list[dict[str, Any]]:
    """Return the lines of a log; an incomplete one, such as the last while it is written, is left out."""
    lines = []
    for text in log.splitlines():
        with suppress(DocumentError):
            lines.append(parse_json(text, _LINE))
    return lines
