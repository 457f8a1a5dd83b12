"""Compare an allocation with this machine's memory before it is made."""

from contextlib import suppress
from pathlib import Path

import psutil

from bertzoo.core.errors import UserError


def machine_memory() -> tuple[int, int]:
    """Return this machine's memory in bytes, within a container's limit: all of it, and what is available now."""
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
