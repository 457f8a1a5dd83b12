"""Measure this machine's memory and reject work that needs more than is available."""

from contextlib import suppress
from pathlib import Path

import psutil

from bertzoo.core.errors import UserError


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
