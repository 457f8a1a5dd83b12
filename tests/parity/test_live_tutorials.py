"""The tutorials that make files for phones, in LiteRT and, where a page says so, in transformers."""

from pathlib import Path

import pytest
from comparing import needs

needs("ai_edge_litert", "litert_converter", "mediapipe", "transformers", "torch")
import test_tutorials

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.mark.parametrize("name", test_tutorials.IN_LITERT)
def test_a_tutorial_runs_in_litert(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_tutorials.run_page(name, tmp_path, monkeypatch)
