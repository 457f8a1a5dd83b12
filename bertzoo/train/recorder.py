"""Reads the metrics of a step one step late, so that the device never waits, and makes records of them."""

import math
import time
from typing import Any

import jax

from bertzoo.train import metrics
from bertzoo.train.job import Job
from bertzoo.train.stages import locate, start_of
from bertzoo.train.step import Batch

_WATCHING = 0.05  # of the time, what a setup watches may take


class Recorder:
    """Collects the reports of train steps and hands a record to every reporter each `log_every` steps."""

    def __init__(self, job: Job):
        self._job = job
        self._peak = metrics.peak_flops(jax.devices()[0].device_kind)
        self._pending: tuple[int, int, dict[str, Any], tuple[int, float], dict[str, float]] | None = None
        self._flops: dict[int, float] = {}  # of a row, by its length, in this stage
        self._totals = metrics.Totals()
        self._meter = metrics.Meter()
        self._began = time.perf_counter()
        self._rests = self._began  # until when nothing is watched

    def begin(self, index: int, fresh: bool) -> None:
        """A stage begins, `fresh` or in its middle: its first step of a length compiles and is not timed."""
        stage, name = self._job.stages[index], self._job.setups[index].name
        if name and fresh:  # stages that differ in more than their sizes are told apart
            sizes = {"steps": stage.steps, "batch_size": stage.batch_size, "max_length": stage.max_length}
            start = start_of(self._job.stages, index)
            self._emit({"event": "stage", "step": start, "stage": index, "name": name, **sizes})
        self._rate = self._job.learning_rate(index)
        self._flops = {}

    def event(self, name: str, step: int, **details: Any) -> None:
        """Record that something happened after `step`."""
        stage, _ = locate(self._job.stages, max(step - 1, 0))
        self._emit({"event": name, "step": step, "stage": stage, **details})

    def put(self, step: int, row: int, report: dict[str, Any], batch: Batch, params: Any) -> None:
        """Take the report of the step just dispatched, whose batch begins with `row`, and read the one before.

        params: after that step, which the next one takes the memory of.
        """
        index, _ = locate(self._job.stages, step - 1)
        stage = self._job.stages[index]
        length = self._job.length(batch) if self._job.length else stage.max_length
        if length not in self._flops:
            self._meter.restart()  # it was compiled, which the step before would seem to have taken
            self._flops[length] = self._job.flops_per_example(index, batch) if self._job.flops_per_example else 0.0
        self.drain()
        figures = self._watched(index, step, params)
        work = stage.batch_size * length, stage.batch_size * self._flops[length]
        self._pending = step, row, report, work, figures

    def drain(self) -> None:
        """Read the report that is still unread; raises NonFinite when its numbers are not finite."""
        if self._pending is None:
            return
        (step, row, report, work, figures), self._pending = self._pending, None
        if not bool(report["finite"]):
            records = self._job.records(step, row)
            error = self._job.non_finite(step, records)
            self.event("non_finite", step, message=str(error), records=records)
            raise error
        self._totals.add(report)
        self._meter.step(*work)
        if self._records(step):
            self._emit(self._train_record(step, float(report["gradient_norm"])) | figures)

    def heldout(self, step: int, means: dict[str, float]) -> float:
        """Record the held-out figures after `step` and return the loss; raises NonFinite where that is not finite."""
        stage, _ = locate(self._job.stages, max(step - 1, 0))
        if not math.isfinite(means["loss"]):
            error = self._job.non_finite_heldout(step)
            self.event("non_finite", step, message=str(error))
            raise error
        self._emit({"step": step, "stage": stage, "split": "heldout", **means})
        return means["loss"]

    def resume(self) -> None:
        """An evaluation or a save has ended: its time does not count as a step's."""
        self._meter.resume()

    def _watched(self, index: int, step: int, params: Any) -> dict[str, float]:
        """What the setup watches, where a record is made: not more than a small share of the time, and not timed."""
        watch, ends = self._job.setups[index].watch, locate(self._job.stages, step)[1] == 0
        if watch is None or not self._records(step) or (time.perf_counter() < self._rests and not ends):
            return {}
        jax.block_until_ready(params)
        began = time.perf_counter()
        found = watch(params)
        took = time.perf_counter() - began
        self._meter.leave_out(took)
        self._rests = time.perf_counter() + took / _WATCHING
        return found

    def _records(self, step: int) -> bool:
        """Whether a record is made of a step: at the interval, and at the end of a stage."""
        return step % self._job.config.log_every == 0 or locate(self._job.stages, step)[1] == 0

    def _emit(self, record: dict[str, Any]) -> None:
        for reporter in self._job.reporters:
            reporter(record)

    def _train_record(self, step: int, gradient_norm: float) -> dict[str, Any]:
        index, _ = locate(self._job.stages, step - 1)
        stage = self._job.stages[index]
        record = {"step": step, "stage": index, "split": "train", **self._totals.means()}
        record |= {"learning_rate": float(self._rate(step)), "gradient_norm": gradient_norm}
        self._totals = metrics.Totals()
        if rates := self._meter.rates():
            record |= {"examples_per_second": rates.steps * stage.batch_size, "tokens_per_second": rates.tokens}
            if rates.flops:
                record["flops_per_second"] = rates.flops
                if self._peak:
                    record["mfu"] = rates.flops / (self._peak * jax.device_count())
        return record | {"memory_bytes": metrics.memory_bytes(), "elapsed_seconds": time.perf_counter() - self._began}
