"""The planted tasks, of labels, of questions and of vectors, and a run on each, made once."""

from pathlib import Path
from typing import Any

import beginning
import embedding_runs
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
def tokenizer() -> Any:
    """The tokenizer of the models of `folder` and `quiz_folder`."""
    return beginning.build_tokenizer(planted.WORDS)


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


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and pairs, and a finished run, which no test changes."""
    folder = tmp_path_factory.mktemp("embedding")
    embedding_runs.prepare(folder)
    assert embedding_runs.finetune(folder, folder / "run", "--epochs=4", "--embedding.sizes=[4]", "--accumulate=2") == 0
    return folder
