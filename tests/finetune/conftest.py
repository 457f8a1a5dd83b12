"""The planted task and a run on it, made once."""

from pathlib import Path

import planted
import pytest


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory `model` and the files of the task, which no test changes."""
    made = tmp_path_factory.mktemp("finetune")
    planted.fill(made)
    return made


@pytest.fixture(scope="session")
def finished(folder: Path) -> Path:
    """A finished run, which no test changes."""
    run = folder / "run"
    assert planted.finetune(folder, run) == 0
    return run
