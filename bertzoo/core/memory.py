"""Measure this machine's memory, check that it suffices for a task, and keep freed memory in the process."""

import ctypes
import importlib.util
import os
from contextlib import suppress
from pathlib import Path

import psutil

from bertzoo.core.errors import UserError

# Options of glibc's mallopt, in malloc.h: M_ARENA_MAX, because only the first arena holds large blocks without mmap;
# M_MMAP_MAX; M_TRIM_THRESHOLD, in bytes.
_KEEP_FREED = {-8: 1, -4: 0, -1: 2**31 - 1}


def machine_memory() -> tuple[int, int]:
    """Return the machine's total and available memory in bytes, within the limits of a container."""
    memory = psutil.virtual_memory()
    total = memory.total
    with suppress(OSError, ValueError):  # a container's memory limit, where "max" means none
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total, min(memory.available, total)


def check_available(needed: int, purpose: str) -> None:
    """Raise UserError, naming the purpose, if fewer than `needed` bytes of memory are available."""
    available = machine_memory()[1]
    if needed > available:
        raise UserError(
            f"{purpose} needs {needed / 1e9:,.1f} GB of memory, but {available / 1e9:,.1f} GB are available. Use a "
            "smaller model or a machine with more memory."
        )


def keep_freed_memory() -> bool:
    """Let glibc keep the memory that this process frees, if JAX computes on the CPU; return whether glibc keeps it.

    XLA allocates the memory of a compiled program at every call and frees it afterwards. By default, glibc returns this
    memory to the system, and the system clears every page before its next use. The clearing takes a tenth of a training
    step or more.

    With this setting, the process never shrinks below its peak memory, and only one of its threads can allocate at a
    time.

    Call the function before JAX starts. It does nothing and returns False with another C library, if JAX may use a GPU
    or a TPU, or if a variable in the environment configures glibc's allocation.
    """
    configured = [name for name in os.environ if name.startswith("MALLOC_")]
    if configured or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    if os.environ.get("JAX_PLATFORMS") != "cpu" and any(map(importlib.util.find_spec, ("libtpu", "jax_plugins"))):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(option, value) for option, value in _KEEP_FREED.items())
