"""Records of a run, with its throughput, and their reporters: metrics.jsonl, TensorBoard and the console."""

import contextlib
import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TextIO

import jax
import numpy as np
import psutil
from rich.console import Console as RichConsole
from rich.live import Live

from bertzoo.core import atomic
from bertzoo.core.documents import DocumentError, parse_json
from bertzoo.train.experiment import Stage, locate, start_of, total_steps
from bertzoo.train.step import Batch, Totals, count_saved_seconds

if TYPE_CHECKING:
    from bertzoo.train.loop import Job

# Peak bf16 FLOP/s of one jax device by the prefix of its device_kind (longest match), from the vendors' tables. A TPU
# v2, v3 or TPU7x chip is two devices.
PEAK_FLOPS = {
    "TPU v2": 22.5e12,
    "TPU v3": 61.5e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v6": 918e12,
    "TPU7x": 1153.5e12,
    "NVIDIA A100": 312e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H200": 989e12,
    "NVIDIA H200 NVL": 835e12,
    "Tesla V100": 125e12,
}


def peak_flops(device_kind: str) -> float | None:
    """Return the peak bf16 FLOP/s of a device, or None if it is unknown."""
    prefixes = [prefix for prefix in PEAK_FLOPS if device_kind.startswith(prefix)]
    return PEAK_FLOPS[max(prefixes, key=len)] if prefixes else None


def memory_bytes() -> int:
    """Return the first local device's peak memory so far, or this process's memory now if the device reports none."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats.get("peak_bytes_in_use", psutil.Process().memory_info().rss))


@dataclasses.dataclass(kw_only=True)
class Meter:
    """Count steps, tokens, FLOPs and seconds between two calls of `throughput`, except excluded seconds."""

    totals: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(4))  # steps, tokens, FLOPs, seconds
    last: float | None = None  # None: the next step is not timed, because it compiles

    def step(self, tokens: int, flops: float) -> None:
        """Count the step that has just finished; it had `tokens` tokens and `flops` FLOPs."""
        now = time.perf_counter()
        if self.last is not None:
            self.totals += 1, tokens, flops, now - self.last
        self.last = now

    def leave_out(self, seconds: float) -> None:
        """Exclude `seconds` of the time since the last step from the throughput."""
        if self.last is not None:
            self.last += seconds

    def throughput(self) -> tuple[float, float, float] | None:
        """Return the steps, tokens and FLOPs per second since the last call, or None if no step was timed."""
        (steps, tokens, flops, seconds), self.totals = self.totals.tolist(), np.zeros(4)
        return (steps / seconds, tokens / seconds, flops / seconds) if seconds else None


Record = dict[str, Any]
# Ending of metrics that are shares -> their label in a line of the console. An objective adds those that it logs.
SHARES: dict[str, str] = {}


class Reporter(Protocol):
    """A callable that takes a run's records (docs/formats.md) one at a time."""

    def __call__(self, record: Record) -> None: ...

    def close(self) -> None: ...


def scalars(record: Record) -> dict[str, float]:
    """Return the metrics of a record by split/key, such as train/loss; {} for an event."""
    numbers = {name: value for name, value in record.items() if isinstance(value, float | int)}
    prefix = record.get("split")
    return {f"{prefix}/{name}": value for name, value in numbers.items() if prefix and name not in ("step", "stage")}


class JsonLines:
    """Append every record to a file as one line of JSON and flush it, so that a killed run loses none.

    The first record drops an incomplete last line. The first metrics, or the event "resumed", drop the metrics of
    repeated steps, but no events.
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
        if (valid := b"".join(line for line in lines if first is None or not _is_repeated(line, first))) != content:
            self._file.close()
            atomic.write_bytes(self._path.resolve(), valid)  # a link remains
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
        from tensorboardX.event_file_writer import EventsWriter

        Path(directory).mkdir(parents=True, exist_ok=True)
        # tensorboardX's SummaryWriter writes in a thread, where the error of a full disk is only printed.
        self._writer = EventsWriter(f"{directory}/events")

    def __call__(self, record: Record) -> None:
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.summary import scalar

        now = {"wall_time": time.time(), "step": record["step"]}
        events = []
        if record.get("event") == "resumed":  # drop records of a crashed run after its last checkpoint
            events = [Event(**now | {"step": record["step"] + 1}, session_log=SessionLog(status=SessionLog.START))]
        events += [Event(**now, summary=scalar(name, value)) for name, value in scalars(record).items()]
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


def file_reporters(metrics: Path, tensorboard: Path) -> list[Reporter]:
    """Return the reporters that write files; TensorBoard's only where the extra `tensorboard` is installed."""
    return [JsonLines(metrics), *([TensorBoard(tensorboard)] if find_spec("tensorboardX") else [])]


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


def metrics_line(record: Record, stages: Sequence[Stage]) -> str:
    """Format a record of training or held-out metrics as one line."""
    words = [f"step {record['step']}/{total_steps(stages)}"]
    if record["split"] != "train":
        words[0] += f"  {record['split']}"
    words.append(f"loss {record['loss']:.4f}")
    words += [
        f"{name.removesuffix('_accuracy')} acc {record[name]:.3f}" for name in record if name.endswith("accuracy")
    ]
    for ending, label in SHARES.items():
        names = [name for name in record if name.endswith(f"_{ending}")]
        if names:
            words.append(" ".join([label, *(f"{name.partition('_')[0]} {record[name]:.0%}" for name in names)]))
    if "learning_rate" in record:
        words.append(f"lr {record['learning_rate']:.2e}")
    rates = ("examples_per_second", "ex/s"), ("tokens_per_second", "tok/s"), ("flops_per_second", "FLOP/s")
    words += [f"{quantity(record[name])} {unit}" for name, unit in rates if name in record]
    if "mfu" in record:
        words.append(f"MFU {record['mfu']:.1%}")
    if "memory_bytes" in record:
        words.append(f"mem {quantity(record['memory_bytes'])}B")
    if record.get("examples_per_second"):
        # Assume that the remaining rows are as long, on average, as the previous ones.
        speed = record["examples_per_second"] * stages[record["stage"]].max_length
        words.append(f"ETA {duration(remaining_tokens(stages, record['step']) / speed)}")
    return "  ".join(words)


def remaining_tokens(stages: Sequence[Stage], step: int) -> int:
    """Return the tokens of the batches that remain after `step` steps."""
    index, inside = locate(stages, step)
    rest = [stage.steps * stage.batch_size * stage.max_length for stage in stages[index:]]
    finished = inside * stages[index].batch_size * stages[index].max_length if rest else 0
    return sum(rest) - finished


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
        saved = f"; a cached program saved {record['saved_seconds']:.1f} s" if "saved_seconds" in record else ""
        return f"compiled in {record['seconds']:.1f} s{saved}{memory}"
    hidden = ("event", "step", "message")  # the message of an error, which is printed anyway
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
        text = event_line(record) if "event" in record else metrics_line(record, self._stages)
        if self._live and record.get("split") == "train":
            self._live.update(text, refresh=True)
        else:
            self._console.print(text, markup=False)

    def close(self) -> None:
        if self._live:
            self._live.stop()


# Activities of a process besides training steps; a training record has the seconds of each, as restoring_seconds.
SPENT = ("restoring", "compiling", "input", "evaluating", "saving")
_FIRST_STEPS = (1, 2, 5, 10, 20, 50)  # steps to log in addition to every `log_every`-th


class Recorder:
    """Collect the reports of training steps and pass a record to every reporter each `log_every` steps."""

    def __init__(self, job: "Job"):
        self._job, self._built = job, job.experiment
        self._peak = peak_flops(jax.devices()[0].device_kind)
        self._pending: tuple[int, int, dict[str, Any], tuple[int, float]] | None = None
        self._flops: dict[int, float] = {}  # FLOPs of a row in this stage, by row length
        self._totals = Totals()
        self._meter = Meter()
        self._started, self._began = time.perf_counter(), time.time()
        self._spent: dict[str, float] = dict.fromkeys(SPENT, 0.0)
        self.stage = 0  # index of the current stage

    def enter_stage(self, index: int, fresh: bool) -> None:
        """Enter stage `index`, at its first step if `fresh`; the first step of each row length is not timed."""
        stage, name = self._built.stages[index], self._built.setups[index].name
        if name and fresh:  # only stages that differ in more than their sizes have names
            sizes = {"steps": stage.steps, "batch_size": stage.batch_size, "max_length": stage.max_length}
            start = start_of(self._built.stages, index)
            self._emit({"event": "stage", "step": start, "stage": index, "name": name, **sizes})
        self._learning_rate = self._built.learning_rate(index)
        self.stage, self._flops = index, {}

    @contextlib.contextmanager
    def spend(self, activity: str) -> Iterator[None]:
        """Count the seconds in this context as spent on `activity`, an item of SPENT, and not on steps."""
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self._spent[activity] += seconds
            self._meter.leave_out(seconds)

    def count_waiting(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches, and count as `input` the time for each that came after the device had finished."""
        while True:
            start = time.perf_counter()
            if (batch := next(batches, None)) is None:
                return
            if self._pending is not None and self._pending[2]["finite"].is_ready():
                self._spent["input"] += time.perf_counter() - start
            yield batch

    def compiled(self, step: int, batch: Batch, compile_step: Callable[[], int]) -> None:
        """Record the event "compiling", call `compile_step`, and record the event "compiled".

        compile_step: returns the bytes that the step, compiled for the shapes of `batch`, needs on one device.
        """
        shape = {"rows": self._built.stages[self.stage].batch_size, "length": self._length(batch)}
        self._emit({"event": "compiling", "step": step - 1, "stage": self.stage, **shape})
        before = self._spent["compiling"]
        with self.spend("compiling"), count_saved_seconds() as saved:
            memory = compile_step()
        cost = {"memory_bytes": memory, "seconds": self._spent["compiling"] - before}
        cost |= {"saved_seconds": sum(saved)} if saved else {}
        self._emit({"event": "compiled", "step": step - 1, "stage": self.stage, **shape, **cost})

    def event(self, name: str, step: int, **details: Any) -> None:
        """Record that the event `name` happened after `step`."""
        self._emit({"event": name, "step": step, "stage": self._stage_of(step), **details})

    def put(self, step: int, row: int, report: dict[str, Any], batch: Batch) -> None:
        """Keep the report of the step just dispatched, whose batch starts at `row`, and read the report before it."""
        index, length = self._stage_of(step), self._length(batch)
        if length not in self._flops:
            self._meter.last = None  # the device computed the previous step while this one was compiled
            self._flops[length] = self._job.flops_per_example(index, batch) if self._job.flops_per_example else 0.0
        self.drain()
        rows = self._built.stages[index].batch_size
        work = rows * length, rows * self._flops[length]
        self._pending = step, row, report, work

    def drain(self) -> None:
        """Read the report of the last `put`; raises NonFinite if a number in it is not finite."""
        if self._pending is None:
            return
        (step, row, report, work), self._pending = self._pending, None
        if not bool(report["finite"]):
            index = self._stage_of(step)
            rows = f"rows {row:,} to {row + self._built.stages[index].batch_size - 1:,}"
            self._fail(step, f"the loss, gradient or update of step {step} is not finite (stage {index}, {rows})")
        self._totals.add(report)
        self._meter.step(*work)
        regular = step % self._job.config.log_every == 0 or step in _FIRST_STEPS
        if regular or locate(self._built.stages, step)[1] == 0:  # the last step of a stage
            self._emit(self._train_record(step, float(report["gradient_norm"])))

    def heldout(self, step: int, means: dict[str, float]) -> float:
        """Record the held-out metrics after `step` and return the loss; raises NonFinite if the loss is not finite."""
        if not math.isfinite(means["loss"]):
            self._fail(step, f"the held-out loss after step {step} is not finite")
        self._emit({"step": step, "stage": self._stage_of(step), "split": "heldout", **means})
        return means["loss"]

    def _fail(self, step: int, problem: str) -> NoReturn:
        error = self._job.non_finite(problem)
        self.event("non_finite", step, message=str(error))
        raise error

    def _length(self, batch: Batch) -> int:
        return self._job.length(batch) if self._job.length else self._built.stages[self.stage].max_length

    def _stage_of(self, step: int) -> int:
        return locate(self._built.stages, max(step - 1, 0))[0]

    def _emit(self, record: dict[str, Any]) -> None:
        for reporter in self._job.reporters:
            reporter(record)

    def _train_record(self, step: int, gradient_norm: float) -> dict[str, Any]:
        index = self._stage_of(step)
        record = {"step": step, "stage": index, "split": "train", **self._totals.means()}
        record |= {"learning_rate": float(self._learning_rate(step)), "gradient_norm": gradient_norm}
        self._totals = Totals()
        if speed := self._meter.throughput():
            steps, tokens, flops = speed
            examples = steps * self._built.stages[index].batch_size
            record |= {"examples_per_second": examples, "tokens_per_second": tokens}
            if flops:
                record["flops_per_second"] = flops
                if self._peak:
                    record["mfu"] = flops / (self._peak * jax.device_count())
        return record | {
            "memory_bytes": memory_bytes(),
            "started": self._began,
            "elapsed_seconds": time.perf_counter() - self._started,
            **{f"{name}_seconds": seconds for name, seconds in self._spent.items()},
        }
