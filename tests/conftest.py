"""Settings of every test process: eight CPU devices, quick compilation, and a compile cache that outlives the run.

This file runs before jax is first imported. Values that the environment sets already win.
"""

import functools
import gc
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiers import LONG_FILES, cache_key, over_budget, prepare_cache

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


CLOCK = [0.0]  # processor time of this process and its children when the last report was made
COLD: Path | None = None  # the compile cache, where it lacks the programs of an earlier `make test`
# The workers of one run and the processes that tests start inherit the folder, so only the first process prepares it.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    cache = prepare_cache(CACHE, cache_key(), CACHE_LIMIT)
    COLD = cache if len(list(cache.glob("*"))) < 100 else None
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The messages of the package's log so far, of level INFO and above."""
    lines, logger, handler = [], logging.getLogger("bertzoo"), logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty bucket at memory://; this machine's cache is empty too."""
    import fsspec

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    system = fsspec.filesystem("memory")
    system.store.clear()
    del system.pseudo_dirs[1:]
    yield system
    system.store.clear()


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
    parser.addoption("--files", type=Path, metavar="FILE", help="run only the test files that this file lists")
    parser.addoption("--measure", action="store_true", help="write each file's processor time to tests/ledger.json")
    parser.addoption("--budget", action="store_true", help="fail if a cold `make test` compiles too many programs")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Spent(config), "spent")


def pytest_collection_finish() -> None:
    CLOCK[0] = sum(os.times()[:4])


@functools.cache
def read_list(path: Path) -> frozenset[str]:
    return frozenset(path.read_text(encoding="utf-8").split())


def is_listed(file: str, config: pytest.Config) -> bool:
    """Whether --files lists a file, or is not used."""
    return not config.option.files or file in read_list(config.option.files)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect only the files that --files lists; pytest does not ask about files of its command line."""
    is_test = collection_path.name.startswith("test_")
    return (is_test and not is_listed(str(collection_path.relative_to(config.rootpath)), config)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long files first, and leave out those of the command line that --files does not list."""
    first = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: first.get(item.nodeid.partition("::")[0], len(first)))
    parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        parts[is_listed(item.nodeid.partition("::")[0], config)].append(item)
    if parts[False]:
        config.hook.pytest_deselected(items=parts[False])
        items[:] = parts[True]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add to the report the processor time of setup, call or teardown, and of the processes that ended in it."""
    report = yield
    report.processor = (now := sum(os.times()[:4])) - CLOCK[0]
    CLOCK[0] = now
    return report


class Spent:
    """The processor time that a run spends: of each file's tests, and of all its processes."""

    def __init__(self, config: pytest.Config) -> None:
        self.options = config.option
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += getattr(report, "processor", 0.0)  # none of a dead worker

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Iterator[None]:
        yield  # ends the workers
        if self.options.files and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK  # another environment has the files
        if self.options.measure:
            import landing

            landing.record_seconds(self.seconds)
        if self.options.budget and not COLD:
            print("\nThe compile cache was warm, so programs were not counted. Delete .pytest_cache/xla first.")
        elif self.options.budget and over_budget(COLD):
            session.exitstatus = max(session.exitstatus, pytest.ExitCode.TESTS_FAILED)
