"""Settings of every test process: eight CPU devices, quick compilation, and a compile cache that outlives the run.

This file runs before jax is first imported. Values that the environment sets already win.
"""

import gc
import hashlib
import importlib.metadata
import os
import platform
import shutil
import zlib
from pathlib import Path

import pytest

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


def cache_key() -> str:
    """A name for what compiled programs depend on besides their source: jax, XLA's flags and the processor."""
    processor = Path("/proc/cpuinfo")
    lines = processor.read_text().splitlines() if processor.is_file() else [platform.processor()]
    features = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    versions = [importlib.metadata.version(name) for name in ("jax", "jaxlib")]
    text = "\n".join([*versions, os.environ["XLA_FLAGS"], *features])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def prepare_cache(directory: Path, key: str, limit: int) -> Path:
    """Return the folder for this key; delete those of other keys, and all where they hold more than `limit` bytes."""
    size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    for other in directory.iterdir() if directory.is_dir() else []:
        if other.name != key or size > limit:
            shutil.rmtree(other, ignore_errors=True)
    return directory / key


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

    from bertzoo import cli

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


# Of the tests beyond `make test` these run at every landing, whatever its slice (docs/testing.md): each family and head
# beside another implementation, each export format once, one run that is killed and resumes.
EVERY_LANDING = (
    "tests/parity/test_huggingface.py::test_forward_loss_and_gradients[bert-0]",
    "tests/parity/test_huggingface.py::test_forward_loss_and_gradients[squeezebert-0]",
    "tests/parity/test_live_convbert.py::test_forward_loss_and_gradients[2-2]",
    "tests/parity/test_live_electra.py::test_forward_losses_and_gradients[0]",
    "tests/parity/test_live_mobilebert.py::test_forward_loss_and_gradients[shared-no_norm-False]",
    "tests/parity/test_live_convert.py::test_there_and_back[",
    *(
        f"tests/parity/test_live_pytorch.py::test_outputs_and_gradients_agree[{case}]"
        for case in (
            "albert",
            "convbert-dynamic",
            "convbert-joint-span",
            "distilbert",
            "electra-discriminator",
            "schubert",
        )
    ),
    "tests/parity/test_live_litert.py::test_every_model_and_head_at_two_lengths[squeezebert]",
    "tests/parity/test_live_litert_verb.py::test_the_verb",
    "tests/parity/test_live_onnx.py::test_every_model_and_head_at_two_lengths[mobilebert]",
    "tests/parity/test_live_torch_export.py::test_the_verb[",
    "tests/parity/test_live_executorch.py::test_models_and_heads[squeezebert]",
    "tests/test_transfer.py::test_a_run_stopped_in_any_stage_resumes_to_the_same_state[3]",
    "tests/hosts/test_runs_of_many.py::test_when_one_is_killed_the_others_end_and_the_run_goes_on[",
)


# Two workers take whole files in this order; a long one that came last would leave the other worker idle.
LONG_FILES = (
    *("launch/test_phone.py", "test_transfer.py", "test_pretrain.py", "train/test_loop.py", "prune/test_prune_run.py"),
    *(
        "finetune/test_trained.py",
        "test_configs.py",
        "launch/test_tpu_vm.py",
        "export/test_rewrites.py",
        "test_taught.py",
    ),
    *("hosts/test_hosts.py", "train/test_checkpoint.py", "models/test_models.py", "finetune/test_run.py"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", metavar="K/N", help="run the K-th of N parts of the test files, and EVERY_LANDING's")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long files first; with --slice=K/N keep the files of that slice and the tests that run at every landing."""
    first = {f"tests/{name}": place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: first.get(item.nodeid.partition("::")[0], len(first)))
    if not config.option.slice:
        return
    number, parts = map(int, config.option.slice.split("/"))
    if not 0 <= number < parts:
        raise pytest.UsageError(f"--slice={config.option.slice}: K is 0 to N - 1")
    kept = [item for item in items if item.nodeid.startswith(EVERY_LANDING) or slice_of(item.nodeid, parts) == number]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def slice_of(nodeid: str, parts: int) -> int:
    """The slice of a test: all tests of a file are in one, as they share its fixtures."""
    return zlib.crc32(nodeid.partition("::")[0].encode()) % parts


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.option.slice and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # another slice has this environment's tests
