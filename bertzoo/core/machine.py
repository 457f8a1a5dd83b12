"""This machine: measure its memory, check that it suffices, keep freed memory in the process; name its processor."""

import ctypes
import functools
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bertzoo.core.errors import ConfigError, UserError

KEEP_VARIABLE = "BERTZOO_KEEP_MEMORY"
# Options of glibc's mallopt (malloc.h): M_ARENA_MAX, because only the first arena holds large blocks without mmap;
# M_MMAP_MAX; M_TRIM_THRESHOLD, where -1 turns trimming off.
_KEEP_FREED = {-8: 1, -4: 0, -1: -1}
# Variables that configure glibc or another allocator.
_CONFIGURING = (
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "LD_PRELOAD",
)
_ACCELERATORS = ("accel*", "vfio/*", "nvidia[0-9]*", "kfd")  # in /dev: TPUs, and GPUs of NVIDIA and AMD


def machine_memory() -> tuple[int, int]:
    """Return the machine's total and available memory in bytes, within the limits of a container.

    First returns the memory that this process has freed, but kept (see `keep_freed_memory`), to the system.
    """
    if trim := _in_libc("malloc_trim"):
        trim(0)
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


@contextmanager
def limited_growth(size: int) -> Iterator[None]:
    """Let allocations fail that would make this process grow by more than `size` bytes; on Linux only.

    Start no threads in the with block: their stacks count, too.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if (status := Path("/proc/self/status")).is_file():
        used = int(re.findall(r"VmData:\s+(\d+)", status.read_text())[0]) << 10
        limits = [limit for limit in (used + size, *before) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def keep_freed_memory() -> bool:
    """Let glibc keep the memory that this process frees; return whether glibc accepts this setting.

    XLA's CPU backend allocates the memory of a compiled program at every call and frees it afterwards. By default,
    glibc returns this memory to the system, and the system clears every page before its next use. With this setting,
    the process never shrinks below its peak memory, and only one of its threads can allocate at a time.

    Call the function before JAX starts. It does nothing and returns False if the C library is not glibc, if the machine
    has a GPU or a TPU and JAX_PLATFORMS is not "cpu", if an environment variable configures the allocator, or if
    BERTZOO_KEEP_MEMORY is 0. Raises ConfigError if BERTZOO_KEEP_MEMORY is set, but neither 0 nor 1.
    """
    choice = os.environ.get(KEEP_VARIABLE, "1")
    if choice not in ("0", "1"):
        raise ConfigError(f"{KEEP_VARIABLE} = {choice!r} in the environment. Use 0 or 1, or unset it.")
    configured = any(name in os.environ for name in _CONFIGURING)
    if choice == "0" or configured or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    if os.environ.get("JAX_PLATFORMS") != "cpu" and any(any(Path("/dev").glob(name)) for name in _ACCELERATORS):
        return False
    mallopt = _in_libc("mallopt")
    return mallopt is not None and all(mallopt(option, value) for option, value in _KEEP_FREED.items())


def _in_libc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None)


_CPUINFO = Path("/proc/cpuinfo")


class Processor(NamedTuple):
    """The first processor of this machine.

    name: its model name, or "" if the system does not list it.
    extensions: names of its instruction set extensions, such as "avx2"; empty if the system does not list them.
    """

    name: str
    extensions: frozenset[str]


@functools.cache  # a trace calls it for each product
def processor() -> Processor:
    """Return this machine's processor; its fields are empty on systems other than Linux."""
    return parse(_CPUINFO.read_text(encoding="utf-8") if _CPUINFO.is_file() else "")


def parse(cpuinfo: str) -> Processor:
    """Return the first processor in the text of a /proc/cpuinfo.

    The text lists the extensions as "flags" on x86 and as "Features" on Arm.
    """
    name = re.search(r"^model name\s*: (.*)", cpuinfo, re.MULTILINE)
    extensions = re.search(r"^(?:flags|Features)\s*: (.*)", cpuinfo, re.MULTILINE)
    return Processor(name[1].strip() if name else "", frozenset(extensions[1].split() if extensions else ()))
