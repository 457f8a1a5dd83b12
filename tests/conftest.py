"""Every test sees eight CPU devices; set before jax is first imported."""

import atexit
import os
import shutil
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The tests are nearly all compile time: unoptimised code halves it. A level that is already set stays.
flags = [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=8"]
if "optimization_level" not in flags[0]:
    flags.append("--xla_backend_optimization_level=0")
os.environ["XLA_FLAGS"] = " ".join(flags).strip()

# And what one of them has compiled serves the next, in every worker and in the processes that tests start.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="bertzoo-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
