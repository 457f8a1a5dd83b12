"""Which tests run when (docs/testing.md), and the compile cache that they share; imports no jax."""

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import shutil
import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

# These tests beyond `make test` run at every landing, in any slice (docs/testing.md): each family and head
# against another implementation, each export format once, one run that is killed and resumes, a tutorial, the site.
EVERY_LANDING = (
    "tests/parity/test_huggingface.py::test_forward_loss_and_gradients[bert-0]",
    "tests/parity/test_huggingface.py::test_forward_loss_and_gradients[squeezebert-0]",
    "tests/parity/test_live_convbert.py::test_forward_loss_and_gradients[2-2]",
    "tests/parity/test_live_electra.py::test_forward_losses_and_gradients[0]",
    "tests/parity/test_live_mobilebert.py::test_forward_loss_and_gradients[shared-no_norm-False]",
    "tests/parity/test_live_convert.py::test_round_trip[",
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
    "tests/parity/test_live_tutorials.py::test_a_tutorial_runs_in_litert[hugging_face]",
    "tests/docs/test_site_build.py::test_the_site_loads_nothing_from_the_web",
    "tests/docs/test_site_build.py::test_faults_stop_the_build",
    "tests/runs/test_transfer.py::test_a_run_stopped_in_any_stage_resumes_to_the_same_state[3]",
    "tests/runs/test_pretrain.py::test_a_stopped_run_resumes_to_the_same_parameters[3-float32]",
    "tests/runs/test_pretrain_replaced.py::test_both_models_are_logged_apart",
    "tests/runs/test_transfer.py::test_copied_parameters_stay_the_teachers_until_distillation",
    "tests/pruning/test_prune_run.py::test_the_result_is_an_ordinary_model",
    "tests/runs/test_devices.py::test_few_tokens_have_the_same_gradients_on_any_mesh",
    "tests/train/test_checkpoint.py::test_a_kill_at_any_moment_of_a_save_leaves_a_checkpoint_that_restores",
    "tests/hosts/test_runs_of_many.py::test_when_a_process_is_killed_the_others_end_and_the_run_resumes[",
)
# Two workers take whole files in this order; a long one that came last would leave the other worker idle.
LONG_FILES = tuple(
    f"tests/{name}.py"
    for name in (
        *("launch/test_phone", "runs/test_transfer", "test_api", "runs/test_pretrain", "train/test_loop"),
        *("pruning/test_prune_run", "models/test_models", "finetuning/test_run"),
        *("finetuning/test_predict_labels", "runs/test_configs", "launch/test_tpu_vm", "export/test_rewrites"),
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


def slice_of(nodeid: str, parts: int) -> int:
    """The slice of a test: all tests of a file are in one, as they share its fixtures."""
    return zlib.crc32(nodeid.partition("::")[0].encode()) % parts


def stale_entries(nodeids: Sequence[str]) -> list[str]:
    """The entries of EVERY_LANDING that match no test although their file was collected."""
    files = {nodeid.partition("::")[0] for nodeid in nodeids}
    return [
        entry
        for entry in EVERY_LANDING
        if entry.partition("::")[0] in files and not any(nodeid.startswith(entry) for nodeid in nodeids)
    ]


def quick(cases: Iterable[Any], *names: Any) -> list[Any]:
    """The cases, those but `names` marked slow: name one for each code path that the cases tell apart."""
    cases = list(cases)
    if unknown := [name for name in names if name not in cases]:
        raise ValueError(f"no such cases: {unknown}")
    return [case if case in names else pytest.param(*_values(case), marks=pytest.mark.slow) for case in cases]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
