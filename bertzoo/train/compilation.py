"""Compile the training step, compare its memory with the device's, and keep compiled programs between runs."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import jax

from bertzoo.core.errors import OutOfMemory
from bertzoo.core.memory import machine_memory
from bertzoo.core.paths import cache_folder
from bertzoo.core.processor import processor
from bertzoo.train import hosts
from bertzoo.train.objective import Batch

_LARGEST_CACHE = 2**31  # bytes; the least recently used programs are dropped first
_QUICKEST = 0.2  # seconds; programs that compile faster are not kept
Advice = Callable[[int, float], str]  # (stage, share of its present memory to stay below) -> advice for the user


class DeviceMemory(NamedTuple):
    """Memory of one device in bytes.

    total: the most that one process can use.
    free: what is available now on a CPU device; None on other devices.
    """

    total: int
    free: int | None

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


class StepProgram:
    """The jitted training step of a stage, compiled once for each shape of batch.

    Compiling raises OutOfMemory if the program needs more memory than the device has.
    """

    def __init__(self, step: Any, shared: bool = True):
        """shared: whether other programs are compiled from `step`; if not, its traces are dropped after compiling."""
        self._step, self._shared = step, shared
        self._programs: dict[tuple, Any] = {}

    def is_compiled(self, batch: Batch) -> bool:
        """Return whether the step is compiled for the shapes of `batch`."""
        return _shapes(batch) in self._programs

    def compile(self, state: Any, frozen: Any, batch: Batch) -> int:
        """Compile the step for a batch's shapes and return the bytes that it needs on one device, 0 if unknown."""
        program = self._step.lower(state, frozen, batch).compile()
        if not self._shared:
            self._step.clear_cache()  # a fifth of what a transfer's step needs beside its arrays
        needed = check_fits(program.memory_analysis())
        self._programs[_shapes(batch)] = program
        return needed

    def __call__(self, state: Any, frozen: Any, batch: Batch) -> tuple[Any, dict[str, Any]]:
        if not self.is_compiled(batch):
            self.compile(state, frozen, batch)
        return self._programs[_shapes(batch)](state, frozen, batch)


def check_fits(analysis: Any) -> int:
    """Return the bytes that a compiled program needs on one device, 0 if unknown.

    analysis: the program's `memory_analysis()`. Raises OutOfMemory if the device has fewer bytes.
    """
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
    """Raise OutOfMemory, with advice, in place of memory errors in the with block.

    stage: returns the current stage's index.
    advice: `loop.Job.memory_advice`, called with (stage, share). The share is the memory available divided by the
    memory needed, or 0.5 if the memory needed is unknown.
    """
    try:
        yield
    except OutOfMemory as error:
        share = error.available / error.needed if error.needed else 0.5
        raise error.of_step(f"the step of stage {stage()}", advice(stage(), share)) from error
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        step = f"the step of stage {stage()}"
        raise OutOfMemory(None, device_memory().total, step=step, advice=advice(stage(), 0.5)) from error


def keep_programs() -> None:
    """Cache compiled programs in the user's cache folder, so that a later command does not compile them again.

    Does nothing if JAX already has a cache directory (JAX_COMPILATION_CACHE_DIR) or the folder cannot be written. Also
    does nothing if the folder is another user's, who could change the programs, and in a run of several processes,
    whose caches would all have to hold the same programs. JAX_ENABLE_COMPILATION_CACHE=false turns the cache off.
    """
    chosen = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if chosen or not hosts.alone():
        return
    with suppress(OSError, RuntimeError):  # no home, or one that cannot be written: compile every time
        folder = cache_folder("programs") / _processor()
        if not folder.parent.exists():
            folder.parent.mkdir(parents=True, mode=0o700)
        folder.mkdir(exist_ok=True)
        private = all(path.stat().st_uid == os.geteuid() for path in (folder.parent, folder))
        if private and os.access(folder, os.W_OK):
            jax.config.update("jax_compilation_cache_max_size", _LARGEST_CACHE)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", _QUICKEST)
            jax.config.update("jax_compilation_cache_dir", str(folder))


def _processor() -> str:
    """Return a hash of this machine's processor type. Programs compiled for another type may not run here."""
    name, extensions = processor()
    return hashlib.sha256("\n".join([name, *sorted(extensions)]).encode()).hexdigest()[:12]


def _shapes(batch: Batch) -> tuple:
    return tuple((name, array.shape) for name, array in batch.items())
