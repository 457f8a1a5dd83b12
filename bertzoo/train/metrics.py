"""Metrics as (sum, weight), their means, and the rates of a run."""

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import numpy as np
import psutil

# Peak bf16 FLOP/s of one jax device, by the beginning of its device_kind (longest match): vendors' tables. A TPU v2, v3
# or TPU7x chip is two devices.
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
    """Peak bf16 FLOP/s of a device, or None where it is not known."""
    known = [kind for kind in PEAK_FLOPS if device_kind.startswith(kind)]
    return PEAK_FLOPS[max(known, key=len)] if known else None


def memory_bytes() -> int:
    """The most memory in use so far on the first local device or, where that is not told, the process's memory now."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats.get("peak_bytes_in_use", psutil.Process().memory_info().rss))


class Totals:
    """Sums and weights of the loss terms and metrics of several batches."""

    def __init__(self):
        self.terms: dict[str, np.ndarray] = {}
        self.metrics: dict[str, np.ndarray] = {}

    def add(self, report: dict[str, Any]) -> None:
        """Add a step's report (`terms` and `metrics` of (sum, weight)); waits for the device."""
        for mine, theirs in ((self.terms, report["terms"]), (self.metrics, report["metrics"])):
            for name, pair in jax.device_get(theirs).items():
                mine[name] = mine.get(name, np.zeros(2)) + np.array(pair, np.float64)

    def means(self) -> dict[str, float]:
        """`loss` (the sum of the terms), `<term>_loss`, and the metrics; a metric of weight 0 is left out."""
        losses = {f"{name}_loss": total / weight for name, (total, weight) in self.terms.items() if weight}
        metrics = {name: total / weight for name, (total, weight) in self.metrics.items() if weight}
        return {name: float(x) for name, x in {"loss": sum(losses.values()), **losses, **metrics}.items()}


class Rates(NamedTuple):
    """What was done in a second: steps, tokens, and model operations."""

    steps: float
    tokens: float
    flops: float


@dataclasses.dataclass(kw_only=True)
class Meter:
    """Counts steps, their work and the seconds spent on them, between one reading and the next; compilation is not
    counted.
    """

    steps: int = 0
    tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0
    last: float | None = None  # None: the next step is not timed, because it compiles

    def step(self, tokens: int, flops: float) -> None:
        """A step on so many tokens, of so many operations, has just finished."""
        now = time.perf_counter()
        if self.last is not None:
            self.steps += 1
            self.tokens += tokens
            self.flops += flops
            self.seconds += now - self.last
        self.last = now

    def resume(self) -> None:
        """Something else than a step (an evaluation, a save) has just finished; its time is not counted."""
        if self.last is not None:
            self.last = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """So many seconds since the last step were spent on something else."""
        if self.last is not None:
            self.last += seconds

    def restart(self) -> None:
        """The step is about to be compiled anew."""
        self.last = None

    def rates(self) -> Rates | None:
        """Since the last call, or None when no step was timed."""
        found = None
        if self.seconds:
            found = Rates(*(done / self.seconds for done in (self.steps, self.tokens, self.flops)))
        self.steps, self.tokens, self.flops, self.seconds = 0, 0, 0.0, 0.0
        return found
