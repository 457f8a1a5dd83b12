"""Helpers for tests of several processes: a free port and an environment."""

import os
import socket
from pathlib import Path


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def environment(devices: int, fault: str | None = None) -> dict[str, str]:
    """Return the environment of a process with `devices` CPU devices and compilation without optimisation.

    fault: what `faults` breaks, such as "save:0" for saving in process 0.
    """
    flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    variables = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": path}
    if fault is None:
        return variables
    faults = Path(__file__).with_name("faults")
    return variables | {"FAULT": fault, "PYTHONPATH": os.pathsep.join([str(faults), path])}
