"""Reporters of a run's records: metrics.jsonl, TensorBoard and the console."""

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from rich.console import Console as RichConsole
from rich.live import Live
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.summary import scalar

from bertzoo.core import atomic
from bertzoo.core.documents import DocumentError, parse_json
from bertzoo.train.stages import Stage, locate, total_steps

Record = dict[str, Any]
# Ending of metrics that are shares -> their label in a line of the console. An objective adds those that it logs.
SHARES: dict[str, str] = {}


class Reporter(Protocol):
    """A callable that takes a run's records (docs/formats.md) one at a time."""

    def __call__(self, record: Record) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """Append every record to a file as one line of JSON and flush it, so that a killed run loses none.

    The first record drops an incomplete last line. The first metrics or event "resumed" drop earlier metrics of steps
    that are repeated; other events repeat no step. Events stay.
    """

    def __init__(self, path: Path | str):
        self._path, self._begun, self._repeats = Path(path), False, False
        self._file = self._path.open("a", encoding="utf-8")

    def __call__(self, record: Record) -> None:
        try:
            repeats = not self._repeats and ("split" in record or record.get("event") == "resumed")
            if repeats or not self._begun:
                self._drop_obsolete(record if repeats else None)
                self._begun, self._repeats = True, self._repeats or repeats
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
        except OSError as error:  # the error of a full disk has no file name
            error.filename = error.filename or self._file.name
            with contextlib.suppress(OSError):  # closing tries to write the rest again
                self._file.close()
            raise

    def _drop_obsolete(self, first: Record | None) -> None:
        """Drop an incomplete last line and, unless `first` is None, metrics of the steps that follow it."""
        content = self._path.read_bytes() if self._path.is_file() else b""  # not a device
        lines = [line + b"\n" for line in content.split(b"\n")[:-1]]
        if (kept := b"".join(line for line in lines if first is None or not _is_repeated(line, first))) != content:
            self._file.close()
            atomic.write_bytes(self._path.resolve(), kept)  # a link stays
            self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        self._file.close()


def _is_repeated(line: bytes, first: Record) -> bool:
    """Return whether a line holds metrics of a step that a run repeats, by its first metrics or "resumed" event."""
    with contextlib.suppress(DocumentError):  # events, and damaged lines, which the report names
        return parse_json(line, {"split": str, "step": int})["step"] + ("split" in first) > first["step"]
    return False


class TensorBoard:
    """Write every number in a record as a TensorBoard scalar named split/key, such as train/loss."""

    def __init__(self, directory: Path | str):
        Path(directory).mkdir(parents=True, exist_ok=True)
        # tensorboardX's SummaryWriter writes in a thread, where the error of a full disk is only printed.
        self._writer = EventsWriter(f"{directory}/events")

    def __call__(self, record: Record) -> None:
        now = {"wall_time": time.time(), "step": record["step"]}
        events = []
        if record.get("event") == "resumed":  # drop what a crashed run wrote after its last checkpoint
            events = [Event(**now | {"step": record["step"] + 1}, session_log=SessionLog(status=SessionLog.START))]
        for name, value in record.items() if "split" in record else ():
            if isinstance(value, float | int) and name not in ("step", "stage"):
                events.append(Event(**now, summary=scalar(f"{record['split']}/{name}", value)))
        try:
            for event in events:
                self._writer.write_event(event)
            self._writer.flush()
        except OSError as error:
            error.filename = error.filename or self._writer._file_name
            self.close()
            raise

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # after a failed write
            self._writer.close()


def quantity(value: float) -> str:
    """Format a number with three significant digits and a unit prefix: 1234567 -> 1.23M."""
    for scale, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Format seconds as 4s, 3m05s, 2h03m or 5d02h."""
    seconds = round(seconds)
    for large, small, unit in ((86400, 3600, "dh"), (3600, 60, "hm"), (60, 1, "ms")):
        if seconds >= large:
            return f"{seconds // large}{unit[0]}{seconds % large // small:02d}{unit[1]}"
    return f"{seconds}s"


def figures_line(record: Record, stages: Sequence[Stage]) -> str:
    """Format a record of training or held-out metrics as one line."""
    parts = [f"step {record['step']}/{total_steps(stages)}"]
    if record["split"] != "train":
        parts[0] += f"  {record['split']}"
    parts.append(f"loss {record['loss']:.4f}")
    parts += [
        f"{name.removesuffix('_accuracy')} acc {record[name]:.3f}" for name in record if name.endswith("accuracy")
    ]
    for ending, label in SHARES.items():
        names = [name for name in record if name.endswith(f"_{ending}")]
        if names:
            parts.append(" ".join([label, *(f"{name.partition('_')[0]} {record[name]:.0%}" for name in names)]))
    if "learning_rate" in record:
        parts.append(f"lr {record['learning_rate']:.2e}")
    rates = ("examples_per_second", "ex/s"), ("tokens_per_second", "tok/s"), ("flops_per_second", "FLOP/s")
    parts += [f"{quantity(record[name])} {unit}" for name, unit in rates if name in record]
    if "mfu" in record:
        parts.append(f"MFU {record['mfu']:.1%}")
    if "memory_bytes" in record:
        parts.append(f"mem {quantity(record['memory_bytes'])}B")
    if record.get("examples_per_second"):
        # Assume that the remaining rows are as long, on average, as the previous ones.
        speed = record["examples_per_second"] * stages[record["stage"]].max_length
        parts.append(f"ETA {duration(tokens_left(stages, record['step']) / speed)}")
    return "  ".join(parts)


def tokens_left(stages: Sequence[Stage], step: int) -> int:
    """Return the tokens of the batches that remain after `step` steps."""
    index, inside = locate(stages, step)
    rest = [stage.steps * stage.batch_size * stage.max_length for stage in stages[index:]]
    done = inside * stages[index].batch_size * stages[index].max_length if rest else 0
    return sum(rest) - done


def event_line(record: Record) -> str:
    """Format an event as one line: its name, step and details."""
    if record["event"] == "stage":
        sizes = f"{record['steps']:,} steps of {record['batch_size']:,} rows of {record['max_length']} tokens"
        return f"{record['name']} starts after step {record['step']}: {sizes}"
    if record["event"] == "compiling":
        return (
            f"compiling the step of stage {record['stage']}: {record['rows']:,} rows of {record['length']} tokens ..."
        )
    if record["event"] == "compiled":
        memory = f"; it needs {quantity(record['memory_bytes'])}B on each device" if record["memory_bytes"] else ""
        return f"compiled in {record['seconds']:.1f} s{memory}"
    hidden = ("event", "step", "message", "records")  # message and records describe an error, which is printed anyway
    rest = [f"{name} {value}" for name, value in record.items() if name not in hidden]
    return "  ".join([f"{record['event'].replace('_', ' ')} at step {record['step']}", *rest])


class Console:
    """Print a line per record to `stream`, by default standard error.

    On a terminal, the newest training metrics replace the previous ones in a line below all other records.
    """

    def __init__(self, stages: Sequence[Stage], stream: TextIO | None = None):
        self._stages = stages
        self._console = RichConsole(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self._live = Live("", console=self._console, auto_refresh=False) if self._console.is_terminal else None
        if self._live:
            self._live.start()

    def __call__(self, record: Record) -> None:
        text = event_line(record) if "event" in record else figures_line(record, self._stages)
        if self._live and record.get("split") == "train":
            self._live.update(text, refresh=True)
        else:
            self._console.print(text, markup=False)

    def close(self) -> None:
        if self._live:
            self._live.stop()
