"""Every test sees eight CPU devices; set before jax is first imported."""

import atexit
import os
import shutil
import tempfile

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The tests are nearly all compile time: code that is neither optimised nor fused by the newer emitters, made by one
# thread for each program, takes a third of it. What the environment sets already stays.
given = os.environ.get("XLA_FLAGS", "")
flags = [
    "--xla_force_host_platform_device_count=8",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
]
os.environ["XLA_FLAGS"] = " ".join([given, *(flag for flag in flags if flag.split("=")[0] not in given)]).strip()

# And what one of them has compiled serves the next, in every worker and in the processes that tests start.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="bertzoo-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(scope="module")
def one_device():
    """The runs of a file have one device, where how many there are is another file's matter."""
    from tiny import devices  # imports jax

    with devices(1):
        yield
