"""Read the metrics of a step one step late, so that the device never waits, and build records from them."""

import math
import time
from collections.abc import Callable
from typing import Any

import jax

from bertzoo.train import metrics
from bertzoo.train.job import Job
from bertzoo.train.stages import locate, start_of
from bertzoo.train.step import Batch

_WATCH_SHARE = 0.05  # largest share of the time that a stage's `watch` may take
_FIRST_STEPS = (1, 2, 5, 10, 20, 50)  # steps to log in addition to every `log_every`-th


class Recorder:
    """Collect the reports of training steps and pass a record to every reporter each `log_every` steps."""

    def __init__(self, job: Job):
        self._job, self._built = job, job.experiment
        self._peak = metrics.peak_flops(jax.devices()[0].device_kind)
        self._pending: tuple[int, int, dict[str, Any], tuple[int, float], dict[str, float]] | None = None
        self._flops: dict[int, float] = {}  # FLOPs of a row in this stage, by row length
        self._totals = metrics.Totals()
        self._meter = metrics.Meter()
        self._started = time.perf_counter()
        self._next_watch = self._started
        self._stage = 0

    def enter_stage(self, index: int, fresh: bool) -> None:
        """Enter stage `index`, at its first step if `fresh`; the first step of each row length is not timed."""
        stage, name = self._built.stages[index], self._built.setups[index].name
        if name and fresh:  # only stages that differ in more than their sizes have names
            sizes = {"steps": stage.steps, "batch_size": stage.batch_size, "max_length": stage.max_length}
            start = start_of(self._built.stages, index)
            self._emit({"event": "stage", "step": start, "stage": index, "name": name, **sizes})
        self._learning_rate = self._built.learning_rate(index)
        self._stage, self._flops = index, {}

    @property
    def stage(self) -> int:
        """Index of the current stage; 0 before the first `enter_stage`."""
        return self._stage

    def compiled(self, step: int, batch: Batch, compile_step: Callable[[], int]) -> None:
        """Record the event "compiling", call `compile_step`, and record the event "compiled".

        batch: the batch of `step`, whose shapes the step is compiled for.
        compile_step: returns the bytes that the compiled step needs on one device.
        """
        shape = {"rows": self._built.stages[self._stage].batch_size, "length": self._length(batch)}
        self._emit({"event": "compiling", "step": step - 1, "stage": self._stage, **shape})
        start = time.perf_counter()
        figures = {"memory_bytes": compile_step(), "seconds": time.perf_counter() - start}
        self._emit({"event": "compiled", "step": step - 1, "stage": self._stage, **shape, **figures})

    def event(self, name: str, step: int, **details: Any) -> None:
        """Record that the event `name` happened after `step`."""
        self._emit({"event": name, "step": step, "stage": self._stage_of(step), **details})

    def put(self, step: int, row: int, report: dict[str, Any], batch: Batch, params: Any) -> None:
        """Keep the report of the step just dispatched, and read the report of the step before it.

        row: the first row of the step's batch.
        params: the parameters after the step, for the stage's `watch`. They must not be read later, because the next
        step reuses their memory.
        """
        index, _ = locate(self._built.stages, step - 1)
        stage, length = self._built.stages[index], self._length(batch)
        if length not in self._flops:
            self._meter.restart()  # else the compilation would count as the previous step's time
            self._flops[length] = self._job.flops_per_example(index, batch) if self._job.flops_per_example else 0.0
        self.drain()
        figures = self._watch(index, step, params)
        work = stage.batch_size * length, stage.batch_size * self._flops[length]
        self._pending = step, row, report, work, figures

    def drain(self) -> None:
        """Read the report that `put` kept last; raises NonFinite if a number in it is not finite."""
        if self._pending is None:
            return
        (step, row, report, work, figures), self._pending = self._pending, None
        if not bool(report["finite"]):
            records = self._job.describe_batch(step, row)
            error = self._job.non_finite(step, records)
            self.event("non_finite", step, message=str(error), records=records)
            raise error
        self._totals.add(report)
        self._meter.step(*work)
        if self._is_logged(step):
            self._emit(self._train_record(step, float(report["gradient_norm"])) | figures)

    def heldout(self, step: int, means: dict[str, float]) -> float:
        """Record the held-out metrics after `step` and return the loss; raises NonFinite if the loss is not finite."""
        if not math.isfinite(means["loss"]):
            error = self._job.non_finite_heldout(step)
            self.event("non_finite", step, message=str(error))
            raise error
        self._emit({"step": step, "stage": self._stage_of(step), "split": "heldout", **means})
        return means["loss"]

    def resume(self) -> None:
        """Exclude the evaluation or save that has just ended from the steps' time."""
        self._meter.resume()

    def _length(self, batch: Batch) -> int:
        return self._job.length(batch) if self._job.length else self._built.stages[self._stage].max_length

    def _stage_of(self, step: int) -> int:
        return locate(self._built.stages, max(step - 1, 0))[0]

    def _watch(self, index: int, step: int, params: Any) -> dict[str, float]:
        """Return the metrics that the stage's `watch` computes, or {} if `watch` is not called after this step.

        `watch` is called after the stage's last step. It is also called after a logged step, unless its last call, of t
        seconds, ended less than t / _WATCH_SHARE seconds ago.
        """
        watch, ends_stage = self._built.setups[index].watch, locate(self._built.stages, step)[1] == 0
        if watch is None or not self._is_logged(step) or (time.perf_counter() < self._next_watch and not ends_stage):
            return {}
        jax.block_until_ready(params)
        start = time.perf_counter()
        figures = watch(params)
        seconds = time.perf_counter() - start
        self._meter.leave_out(seconds)
        self._next_watch = time.perf_counter() + seconds / _WATCH_SHARE
        return figures

    def _is_logged(self, step: int) -> bool:
        regular = step % self._job.config.log_every == 0 or step in _FIRST_STEPS
        return regular or locate(self._built.stages, step)[1] == 0

    def _emit(self, record: dict[str, Any]) -> None:
        for reporter in self._job.reporters:
            reporter(record)

    def _train_record(self, step: int, gradient_norm: float) -> dict[str, Any]:
        index = self._stage_of(step)
        record = {"step": step, "stage": index, "split": "train", **self._totals.means()}
        record |= {"learning_rate": float(self._learning_rate(step)), "gradient_norm": gradient_norm}
        self._totals = metrics.Totals()
        if speed := self._meter.throughput():
            examples = speed.steps * self._built.stages[index].batch_size
            record |= {"examples_per_second": examples, "tokens_per_second": speed.tokens}
            if speed.flops:
                record["flops_per_second"] = speed.flops
                if self._peak:
                    record["mfu"] = speed.flops / (self._peak * jax.device_count())
        return record | {"memory_bytes": metrics.memory_bytes(), "elapsed_seconds": time.perf_counter() - self._started}
