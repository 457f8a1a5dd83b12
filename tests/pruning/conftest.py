"""What the tests of whole prunings begin with."""

from pathlib import Path

import pytest
from prunable import fill


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Filled, for each file anew."""
    made = tmp_path_factory.mktemp("prune")
    fill(made)
    return made
