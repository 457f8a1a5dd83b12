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

BUDGET = 4000  # programs that `make test` may compile with a cold cache; it compiles 3,480
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


def over_budget(cache: Path) -> bool:
    """Print the processor time so far; return whether the compile cache holds more than BUDGET programs.

    The time fails nothing: on a busy machine the same tests need twice as much.
    """
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in usage)
    programs = len(list(cache.glob("*")))
    print(f"\n{seconds:.0f} s of processor time, {programs:,} compiled programs of {BUDGET:,} at most")
    return programs > BUDGET


def quick(cases: Iterable[Any], *names: Any) -> list[Any]:
    """The cases, those but `names` marked slow: name one for each code path that the cases tell apart."""
    cases = list(cases)
    if unknown := [name for name in names if name not in cases]:
        raise ValueError(f"no such cases: {unknown}")
    return [case if case in names else pytest.param(*_values(case), marks=pytest.mark.slow) for case in cases]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
