"""The planted tasks, of labels and of questions, and a run on each, made once."""

from pathlib import Path

import planted
import pytest
import quiz


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


@pytest.fixture(scope="session")
def quiz_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory `model`, SQuAD's files of both versions, and `own.jsonl`, which no test changes."""
    made = tmp_path_factory.mktemp("quiz")
    quiz.fill(made)
    return made


@pytest.fixture(scope="session")
def quiz_run(quiz_folder: Path) -> Path:
    """A finished run on SQuAD 1.1, which no test changes."""
    run = quiz_folder / "run"
    assert quiz.finetune(quiz_folder, run, "--task=squad1") == 0
    return run
