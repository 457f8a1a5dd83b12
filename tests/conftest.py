"""Settings of every test process: eight CPU devices, quick compilation, and a compile cache that outlives the run.

This file runs before jax is first imported. Values that the environment sets already win.
"""

import gc
import os
from pathlib import Path

import pytest
from tiers import EVERY_LANDING, LONG_FILES, cache_key, prepare_cache, slice_of, stale_entries

CACHE = Path(__file__).parents[1] / ".pytest_cache" / "xla"
CACHE_LIMIT = 2**30  # bytes; a complete `make test` writes about a tenth of it

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Programs run for milliseconds here, so XLA neither optimises them nor uses its newer, slower code generator.
environment_flags = os.environ.get("XLA_FLAGS", "")
flags = [
    "--xla_force_host_platform_device_count=8",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
]
missing = [flag for flag in flags if flag.split("=")[0] not in environment_flags]
os.environ["XLA_FLAGS"] = " ".join([environment_flags, *missing]).strip()
# Tracing makes millions of objects that live long; Python's collector would take a fifth of the run to look at them.
gc.set_threshold(200_000, 20, 100)


# The workers of one run and the processes that tests start inherit the folder, so only the first process prepares it.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(prepare_cache(CACHE, cache_key(), CACHE_LIMIT))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The text of `tiny.write_text`, tokenised as `tiny.TOML` says; tests may read it and copy it."""
    import tiny

    return tiny.make_corpus(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_config(tiny_corpus: Path) -> str:
    """The config `tiny.TOML`, which reads `tiny_corpus`."""
    import tiny

    return str(tiny.write_config(tiny_corpus.parent, tiny_corpus))


@pytest.fixture(scope="session")
def finished_run(tiny_config: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished pretraining run of `tiny_config` on one device; tests may read it and copy it."""
    from tiny import devices

    from bertzoo.cli import main as cli

    run = tmp_path_factory.mktemp("finished") / "run"
    with devices(1):
        assert cli.main(["pretrain", tiny_config, f"--run_dir={run}"]) == 0
    return run


@pytest.fixture(scope="module")
def one_device():
    """Run the file's training on one device, where the number of devices is another file's subject."""
    from tiny import devices  # imports jax

    with devices(1):
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", metavar="K/N", help="run the K-th of N parts of the test files, and EVERY_LANDING's")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long files first; with --slice=K/N keep the files of that slice and the tests that run at every landing."""
    first = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: first.get(item.nodeid.partition("::")[0], len(first)))
    if not config.option.slice:
        return
    number, parts = map(int, config.option.slice.split("/"))
    if not 0 <= number < parts:
        raise pytest.UsageError(f"--slice={config.option.slice}: K is 0 to N - 1")
    if stale := stale_entries([item.nodeid for item in items]):
        raise pytest.UsageError(f"EVERY_LANDING in tests/tiers.py names tests that are gone: {', '.join(stale)}")
    kept = [item for item in items if item.nodeid.startswith(EVERY_LANDING) or slice_of(item.nodeid, parts) == number]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.option.slice and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # another slice has this environment's tests
