"""Add up metrics given as (sum, weight), compute their means, and measure the throughput of a run."""

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import numpy as np
import psutil

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


class Totals:
    """Sums and weights of the loss terms and metrics over several batches."""

    def __init__(self):
        self.terms: dict[str, np.ndarray] = {}
        self.metrics: dict[str, np.ndarray] = {}

    def add(self, report: dict[str, Any]) -> None:
        """Add the report of a training or evaluation step: `terms` and `metrics`, {name: (sum, weight)}.

        Waits for the device.
        """
        for totals, pairs in ((self.terms, report["terms"]), (self.metrics, report["metrics"])):
            for name, pair in jax.device_get(pairs).items():
                totals[name] = totals.get(name, np.zeros(2)) + np.array(pair, np.float64)

    def means(self) -> dict[str, float]:
        """Return means: every loss term as `<term>_loss`, the sum of terms as `loss`, and every metric.

        Leaves out terms and metrics of weight 0.
        """
        losses = {f"{name}_loss": total / weight for name, (total, weight) in self.terms.items() if weight}
        metrics = {name: total / weight for name, (total, weight) in self.metrics.items() if weight}
        return {name: float(x) for name, x in {"loss": sum(losses.values()), **losses, **metrics}.items()}


class Throughput(NamedTuple):
    """Steps, tokens and model FLOPs per second."""

    steps: float
    tokens: float
    flops: float


@dataclasses.dataclass(kw_only=True)
class Meter:
    """Count steps, tokens, FLOPs and seconds between two calls of `throughput`, except while a step compiles."""

    steps: int = 0
    tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0
    last: float | None = None  # None: the next step is not timed, because it compiles

    def step(self, tokens: int, flops: float) -> None:
        """Count the step that has just finished; it had `tokens` tokens and `flops` FLOPs."""
        now = time.perf_counter()
        if self.last is not None:
            self.steps += 1
            self.tokens += tokens
            self.flops += flops
            self.seconds += now - self.last
        self.last = now

    def resume(self) -> None:
        """Exclude from the throughput the time since the last step, in which an evaluation or a save ran."""
        if self.last is not None:
            self.last = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Exclude `seconds` of the time since the last step from the throughput."""
        if self.last is not None:
            self.last += seconds

    def restart(self) -> None:
        """Exclude the next step, which compiles, from the throughput."""
        self.last = None

    def throughput(self) -> Throughput | None:
        """Return the throughput since the last call, or None if no step was timed."""
        result = None
        if self.seconds:
            result = Throughput(*(count / self.seconds for count in (self.steps, self.tokens, self.flops)))
        self.steps, self.tokens, self.flops, self.seconds = 0, 0, 0.0, 0.0
        return result
