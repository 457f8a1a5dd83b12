"""benchmarks/phone_grouped.py: its table, and that it says where a file is written in a way that is not the fastest."""

from typing import Any

import pytest
from scripts import loaded


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    return loaded("phone_grouped", monkeypatch)


def rounds(second: float) -> list[list[float]]:
    """Of which the middle one is ten times as slow for all."""
    return [[slow * second] * 3 for slow in (1, 10, 1)]


def test_the_section_says_what_was_measured(script: Any) -> None:
    ways = {"convolution": rounds(0.1), "apart": rounds(0.095), "batched": rounds(0.12)}
    found = {target: ways for target in script.BACKEND}
    found["litert"] = {name: ways[name] for name in ("convolution", "apart")}
    said = script.section(found, 3)
    assert "| onnx | 100.0 (1.000) | 95.0 (0.950) | 120.0 (1.200) |" in said
    assert "| litert | 100.0 (1.000) | 95.0 (0.950) | - |" in said
    assert said.endswith("What `bertzoo convert` writes is to within 3% the fastest of each.")
    found["executorch"] = ways | {"batched": rounds(0.093)}
    assert script.section(found, 3).endswith("the fastest of each.")
    found["executorch"] = ways | {"batched": rounds(0.09)}
    end = "the fastest but for: in executorch the fastest is one product, batched by groups."
    assert script.section(found, 3).endswith(end)
