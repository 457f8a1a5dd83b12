"""What the tests of several processes share: a port, an environment, and starting them."""

import os
import socket
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests"))


def free_port() -> int:
    """A port where nobody listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def environment(devices: int) -> dict[str, str]:
    """That of a process with so many CPU devices, whose programs are compiled quickly rather than well."""
    flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": path}
