"""The memory of a training step: estimated from shapes, compared once compiled, and how to reduce it."""

import bisect
import dataclasses
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from bertzoo.core.config import divisors
from bertzoo.core.errors import OutOfMemory
from bertzoo.core.machine import machine_memory
from bertzoo.nn import flops
from bertzoo.train import sharding

if TYPE_CHECKING:
    from bertzoo.train.experiment import Experiment

_LOG = logging.getLogger(__name__)

Advice = Callable[[int, float], str]  # (stage, share of its present memory to stay below) -> advice for the user


class DeviceMemory(NamedTuple):
    """Memory of one device in bytes."""

    total: int  # the most that one process can use
    free: int | None  # available now on a CPU device; None on other devices

    @property
    def usable(self) -> int:
        """The bytes that a step can use now."""
        return self.total if self.free is None else min(self.total, self.free)


def device_memory() -> DeviceMemory:
    """Return the memory of the first local device; CPU devices share the machine's memory evenly."""
    if limit := (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit"):
        return DeviceMemory(int(limit), None)
    total, available = machine_memory()
    devices = jax.local_device_count()
    return DeviceMemory(total // devices, available // devices)


def check_fits(analysis: Any) -> int:
    """Return the bytes of a program's `memory_analysis()` on a device, 0 if unknown; OutOfMemory if they do not fit."""
    if analysis is None:  # some backends have none
        return 0
    beside = analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    needed, memory = beside + analysis.argument_size_in_bytes, device_memory()
    if needed > memory.total:
        raise OutOfMemory(needed, memory.total)
    if memory.free is not None and beside > memory.free:  # the arguments are there already
        raise OutOfMemory(beside, memory.free, "free of this machine's memory")
    return needed


@contextmanager
def memory_errors(stage: Callable[[], int], advice: Advice) -> Iterator[None]:
    """Raise OutOfMemory, with advice for the current stage, in place of memory errors in the with block.

    advice: `loop.Job.memory_advice`, called with (stage, memory available / memory needed, or 0.5 if that is unknown).
    """
    try:
        yield
    except OutOfMemory as error:
        share = error.available / error.needed if error.needed else 0.5
        step, remedy = f"the step of stage {stage()}", advice(stage(), share)
        raise OutOfMemory(error.needed, error.available, error.where, step, remedy) from error
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        step = f"the step of stage {stage()}"
        raise OutOfMemory(None, device_memory().total, step=step, advice=advice(stage(), 0.5)) from error


# Compiled steps need 0.85 to 1.32 times the estimate on a CPU, and less on accelerators, whose compilers fuse more.
_MOST = 1.35  # largest ratio of the needed to the estimated memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Bytes that a training step needs on one device; all fields are exact except `activations`."""

    parameters: int
    optimizer: int
    teacher: int
    batch: int
    gradients: int  # of one microbatch and, with several, the sum over microbatches
    activations: int  # estimate: the peak of live values if the compiler fuses no operations

    @property
    def total(self) -> int:
        return sum(dataclasses.astuple(self))

    @property
    def exact(self) -> int:
        return self.total - self.activations

    @property
    def ample(self) -> int:
        """`total` plus a second copy of parameters and optimiser state, a reserve for unknown needs of the compiler."""
        return self.total + self.parameters + self.optimizer


def step_memory(
    built: "Experiment", index: int, accumulate: int | None = None, gradients: core.Jaxpr | None = None
) -> StepMemory:
    """Return the memory that a step needs in training stage `index`.

    accumulate: number of microbatches, by default the stage's own. gradients: the result of `built.trace_gradients` for
    the rows of a microbatch on one device; computed if None.
    """
    stage, state = built.stages[index], built.state(index)
    rows, accumulate = stage.batch_size // sharding.row_shards(built.mesh), accumulate or stage.microbatches
    if gradients is None:
        gradients = built.trace_gradients(index, rows // accumulate)
    parameters, teacher = bytes_of(state.params), built.frozen_shapes
    gathered = bytes_of((state.params, teacher), whole=True) - bytes_of((state.params, teacher))
    return StepMemory(
        parameters=parameters,
        optimizer=bytes_of(state.opt_state),
        teacher=bytes_of(teacher),
        batch=bytes_of(built.batch(index, rows)),
        gradients=parameters * (2 if accumulate > 1 else 1),
        activations=flops.peak_beside_results(gradients) + gathered,
    )


def ceiling(built: "Experiment", index: int) -> int:
    """Return a number of bytes that a step of stage `index` never needs, from the parameters' sizes alone.

    It counts the state three times, and for each token and each column of a parameter eight values and a row of
    attention scores. A model has far fewer heads than columns, so this is many times the estimate of `step_memory`.
    """
    stage, held = built.stages[index], (built.state(index), built.frozen_shapes)
    tokens = (stage.batch_size // stage.microbatches // sharding.row_shards(built.mesh)) * stage.max_length
    columns = sum(leaf.shape[-1] for leaf in jax.tree.leaves((held[0].params, held[1])) if leaf.shape)
    return 3 * bytes_of(held, whole=True) + 4 * tokens * columns * (8 + stage.max_length)


def check_memory(built: "Experiment") -> None:
    """Raise OutOfMemory, with advice, if the largest step is certain not to fit the devices.

    Warns about a step that may not fit; `check_fits` decides after compiling it.
    """
    tokens = [stage.batch_size // stage.microbatches * stage.max_length for stage in built.stages]
    index = tokens.index(max(tokens))
    device = device_memory()
    if ceiling(built, index) <= device.usable:
        return  # without tracing the model, which takes most of the time of starting a small run
    memory = step_memory(built, index)
    if memory.total <= device.usable:
        return
    step, remedy = f"the step of stage {index}", advice(built, index, device.usable / memory.total)
    least = 0.85 if jax.default_backend() == "cpu" else 0.5
    if max(memory.exact, least * memory.total) > device.usable:
        where = "free" if device.usable < device.total else ""
        raise OutOfMemory(memory.total, device.usable, where, step, remedy)
    _LOG.warning(
        f"{step} needs about {memory.total / 1e9:,.1f} GB of memory on each device, which has "
        f"{device.usable / 1e9:,.1f} GB: it may not fit. {remedy}"
    )


def advice(built: "Experiment", index: int, share: float) -> str:
    """Return advice that cuts the memory of the step of stage `index` to `share` of its present memory.

    The sentence offers two options: more microbatches (`accumulate`) or a smaller `batch_size`. Either one cuts the
    estimate to at most share / _MOST of the present one, because a compiled step may need _MOST times its estimate. If
    one row per microbatch still needs more, the sentence advises a smaller model or more devices.
    """
    stage, key, shards = built.stages[index], built.where(index), sharding.row_shards(built.mesh)
    limit, rows = share * step_memory(built, index).total / _MOST, stage.batch_size // shards
    counts = [n for n in divisors(rows) if n > stage.microbatches]
    fitting = bisect.bisect_left(counts, True, key=lambda n: step_memory(built, index, n).total <= limit)
    if fitting == len(counts):
        return (
            "Not even one row at a time is certain to fit. Use a smaller model, a device with more memory, or "
            "--mesh.fsdp to split the parameters over more devices."
        )
    n, (table, _, number) = counts[fitting], key.rpartition(".")
    together = number.isdecimal() and all(other.batch_size % (n * shards) == 0 for other in built.stages)
    option = f"'--{table}.*.accumulate={n}'" if together else f"--{key}.accumulate={n}"
    smaller = stage.batch_size * stage.microbatches // n
    return (
        f"Use {option}, which computes the same in {n} microbatches, or --{key}.batch_size={smaller}, which changes "
        "the recipe."
    )


def bytes_of(tree: Any, whole: bool = False) -> int:
    """Return the bytes of a tree's arrays. Counts an array's shard on one device or, if `whole`, the whole array."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        split = None if whole else getattr(leaf, "sharding", None)
        total += math.prod(split.shard_shape(leaf.shape) if split else leaf.shape) * np.dtype(leaf.dtype).itemsize
    return total
