"""What becomes of freed memory on a CPU."""

import os
import subprocess
import sys

import pytest

from bertzoo.core import memory

CALLS, BLOCK = 20, 2**14  # pages of 4 KiB in the 64 MB of intermediate results of a program
# Pages that the system hands to the last half of the calls; at first, small allocations cut up freed blocks.
PROGRAM = """
import resource, sys
from bertzoo.core.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
import jax, jax.numpy as jnp
call = jax.jit(lambda x: jnp.sin(x * jnp.arange(2**12)[:, None]) @ x)
x = jnp.ones(2**12)
for number in range(2 * int(sys.argv[2])):
    if number == int(sys.argv[2]):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call(x).block_until_ready()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def environment(**more: str) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    return plain | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", **more}


def pages(choice: str) -> int:
    command = [sys.executable, "-c", PROGRAM, choice, str(CALLS)]
    return int(subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="needs glibc")
def test_calls_of_a_program_share_their_pages() -> None:
    assert pages("keep") < CALLS / 2 * BLOCK and pages("free") >= CALLS * BLOCK


@pytest.mark.parametrize(
    ("variable", "value"), [("MALLOC_ARENA_MAX", "4"), ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")]
)
def test_the_environment_decides_alone(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_KEEP_FREED", {})  # this process stays as it is
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    before = memory.keep_freed_memory()
    monkeypatch.setenv(variable, value)
    assert (before, memory.keep_freed_memory()) == (hasattr(memory.ctypes.CDLL(None), "mallopt"), False)


def test_a_process_that_may_use_an_accelerator_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_KEEP_FREED", {})
    monkeypatch.setattr(memory.importlib.util, "find_spec", lambda name: name == "libtpu" or None)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert not memory.keep_freed_memory()
