"""Fixtures for tests of whole pruning runs."""

from pathlib import Path

import pytest
from prunable import fill


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with corpus, trained model and config, one for each test file."""
    return fill(tmp_path_factory.mktemp("prune"))
