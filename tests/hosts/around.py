"""What the tests of several processes share: a port, an environment, and starting them."""

import os
import socket
from pathlib import Path

ROOT = Path(__file__).parents[2]
import tiny  # noqa: E402

__all__ = ["environment", "free_port", "tiny"]


def free_port() -> int:
    """A port where nobody listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def environment(devices: int, fault: str | None = None) -> dict[str, str]:
    """That of a process with so many CPU devices, whose programs are compiled quickly rather than well.

    fault: what of `faults` breaks, such as "save:0", in process 0.
    """
    flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    found = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": path}
    if fault is None:
        return found
    faults = Path(__file__).with_name("faults")
    return found | {"FAULT": fault, "PYTHONPATH": os.pathsep.join([str(faults), path])}
