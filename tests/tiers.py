"""Which tests run when (docs/testing.md), and the compile cache that they share; imports no jax."""

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import resource
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

PACE = 0.31  # `pace` of the machine that BUDGET holds for: an AMD EPYC with AVX-512, two cores
BUDGET = 500  # seconds of processor time of `make test` with a cold compile cache; with a warm one two thirds
# Two workers take whole files in this order; a long one that came last would leave the other worker idle.
LONG_FILES = tuple(
    f"tests/{name}.py"
    for name in (
        *("launch/test_phone", "runs/test_transfer", "test_api", "runs/test_pretrain", "train/test_loop"),
        *("pruning/test_prune_run", "models/test_models", "finetuning/test_run"),
        *("finetuning/test_predict_labels", "runs/test_configs", "launch/test_tpu_vm", "export/test_graph"),
        *("runs/test_transfer_stages", "train/test_checkpoint", "docs/test_tutorials"),
    )
)
STALE = 14 * 86_400  # seconds after which the cache of another key is deleted


def cache_key() -> str:
    """A key for the dependencies of compiled programs: jax, XLA's flags and the processor."""
    processor = Path("/proc/cpuinfo")
    lines = processor.read_text().splitlines() if processor.is_file() else [platform.processor()]
    features = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    versions = [importlib.metadata.version(name) for name in ("jax", "jaxlib")]
    text = "\n".join([*versions, os.environ["XLA_FLAGS"], *features])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def prepare_cache(directory: Path, key: str, limit: int) -> Path:
    """Return the folder for this key; delete old folders of other keys, and the oldest programs beyond `limit` bytes.

    Other test runs may write and delete there at the same time.
    """
    for other in directory.iterdir() if directory.is_dir() else []:
        with contextlib.suppress(FileNotFoundError):
            if other.name != key and time.time() - other.stat().st_mtime > STALE:
                shutil.rmtree(other, ignore_errors=True)
    programs = []
    for file in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if file.is_file():
                programs.append((file.stat().st_mtime, file.stat().st_size, file))
    held = 0
    for _, size, file in sorted(programs, reverse=True):
        held += size
        if held > limit:
            file.unlink(missing_ok=True)
    return directory / key


def pace() -> float:
    """Seconds of processor time for a fixed piece of Python on this machine, the least of three."""

    def once() -> float:
        start = time.process_time()
        sum(hash((number, str(number))) & 1 for number in range(2_000_000))
        return time.process_time() - start

    return min(once() for _ in range(3))


def over_budget(warm: bool) -> bool:
    """Print the processor time of this process and its children; return whether it is more than 1.25 of the budget.

    The budget grows with `pace` on a slower machine.
    """
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in usage)
    budget = BUDGET * (2 / 3 if warm else 1) * max(1, pace() / PACE)
    print(f"\nprocessor time: {seconds:.0f} s with a {'warm' if warm else 'cold'} cache; the budget is {budget:.0f} s")
    return seconds > 1.25 * budget


def quick(cases: Iterable[Any], *names: Any) -> list[Any]:
    """The cases, those but `names` marked slow: name one for each code path that the cases tell apart."""
    cases = list(cases)
    if unknown := [name for name in names if name not in cases]:
        raise ValueError(f"no such cases: {unknown}")
    return [case if case in names else pytest.param(*_values(case), marks=pytest.mark.slow) for case in cases]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
