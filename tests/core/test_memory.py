"""Freed memory stays in a process that computes on a CPU; the processor's name and extensions."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from messages import mentioning

from bertzoo.cli import main as cli
from bertzoo.core import machine
from bertzoo.core.errors import ConfigError
from bertzoo.core.machine import Processor, parse

CALLS = 20
# Page faults in the last half of the calls of a program with 64 MB of intermediate results; at first, small allocations
# cut up freed blocks.
PROGRAM = """
import resource, sys
from bertzoo.core.machine import keep_freed_memory
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


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment in which memory stays in the process, and a C library that accepts every option."""
    for name in (*machine._CONFIGURING, "GLIBC_TUNABLES", "JAX_PLATFORMS", machine.KEEP_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "_ACCELERATORS", ())
    monkeypatch.setattr(machine, "_in_libc", lambda name: lambda *options: 1)
    return monkeypatch


@pytest.mark.slow
@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="needs glibc")
def test_calls_of_a_program_share_their_pages(plain: pytest.MonkeyPatch) -> None:
    plain.setenv("JAX_PLATFORMS", "cpu")
    plain.setenv("XLA_FLAGS", "")
    faults = {}
    for choice in ("keep", "free"):
        command = [sys.executable, "-c", PROGRAM, choice, str(CALLS)]
        faults[choice] = int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert faults["free"] >= CALLS  # one, even of huge pages, a call
    assert faults["keep"] < faults["free"] / 2


@pytest.mark.parametrize(
    ("variables", "devices", "accepted"),
    [
        ({}, (), True),
        ({machine.KEEP_VARIABLE: "1"}, (), True),
        ({machine.KEEP_VARIABLE: "0"}, (), False),
        ({"MALLOC_ARENA_MAX": "4"}, (), False),
        ({"LD_PRELOAD": "libjemalloc.so"}, (), False),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, (), False),
        ({"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F"}, (), True),
        ({}, ("null",), False),  # a file in /dev
        ({"JAX_PLATFORMS": "cpu"}, ("null",), True),
    ],
)
def test_variables_and_devices_decide(
    variables: dict[str, str], devices: tuple[str, ...], accepted: bool, plain: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        plain.setenv(name, value)
    plain.setattr(machine, "_ACCELERATORS", devices)
    assert machine.keep_freed_memory() == accepted


def test_a_c_library_without_the_options_changes_nothing(plain: pytest.MonkeyPatch) -> None:
    plain.setattr(machine, "_in_libc", lambda name: None)
    assert not machine.keep_freed_memory() and machine.machine_memory()[0] > 0


def test_an_unknown_choice_raises(plain: pytest.MonkeyPatch) -> None:
    plain.setenv(machine.KEEP_VARIABLE, "yes")
    with pytest.raises(ConfigError, match=mentioning(machine.KEEP_VARIABLE, "yes")):
        machine.keep_freed_memory()


@pytest.mark.parametrize(("verb", "calls"), [("evaluate", 1), ("models", 0)])
def test_commands_that_compute_keep_memory(verb: str, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    monkeypatch.setattr(cli, "keep_freed_memory", lambda: counted.append(1))
    monkeypatch.setattr(cli, "main", lambda words: 0)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # `entry` sets it
    monkeypatch.setattr(sys, "argv", ["bertzoo", verb])
    with pytest.raises(SystemExit):
        cli.entry()
    assert len(counted) == calls


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_kept_memory_counts_as_available(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    monkeypatch.setattr(machine, "_in_libc", lambda name: lambda value: calls.append((name, value)))
    machine.machine_memory()
    assert calls == [("malloc_trim", 0)]


@pytest.mark.parametrize(("limit", "total"), [("1000000\n", 1_000_000), ("max\n", None)])
def test_a_container_limits_the_memory(
    limit: str, total: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(machine, "Path", lambda name: tmp_path / Path(name).name)
    found, available = machine.machine_memory()
    assert found == (total or psutil.virtual_memory().total) and 0 < available <= found


X86 = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 avx512_bf16\n\nprocessor\t: 1\nmodel name\t: other\n"
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd bf16\n"


@pytest.mark.parametrize(
    ("text", "name", "extensions"),
    [(X86, "AMD EPYC", {"fpu", "avx2", "avx512_bf16"}), (ARM, "", {"fp", "asimd", "bf16"}), ("", "", set())],
    ids=["x86", "arm", "none"],
)
def test_the_first_processor_is_parsed(text: str, name: str, extensions: set[str]) -> None:
    assert parse(text) == Processor(name, frozenset(extensions))
