"""Every test sees eight CPU devices; set before jax is first imported."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The tests are nearly all compile time: unoptimised code halves it. A level that is already set stays.
flags = [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=8"]
if "optimization_level" not in flags[0]:
    flags.append("--xla_backend_optimization_level=0")
os.environ["XLA_FLAGS"] = " ".join(flags).strip()
