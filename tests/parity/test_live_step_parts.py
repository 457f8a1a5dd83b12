"""benchmarks/step_parts.py: both sides compute one thing, and the page counts."""

from typing import Any

import numpy as np
import pytest
from comparing import needs

needs("torch")
from scripts import loaded


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    return loaded("step_parts", monkeypatch)


@pytest.mark.parametrize("index", range(10))
def test_both_sides_compute_one_thing(index: int, script: Any) -> None:
    part = script.PARTS[index]
    mine, other = script.ours(part)(), script.theirs(part)()
    assert len(mine) == len(other) == 1 + part.back * len(part.shapes)
    for one, two in zip(mine, other, strict=True):
        np.testing.assert_allclose(one, two.numpy(), rtol=0, atol=2e-5 * float(two.abs().max()))


def test_the_page_counts(script: Any) -> None:
    """12 times 4 ms are 0.05 s."""
    part = next(each for each in script.PARTS if each.name == "GELU")
    said = script.page([(part, 0.004, 0.002, 0.5)], 7)
    assert "| GELU, forward and backward | 12 | 4.00 | 2.00 | 0.50 | 0.05 | 0.02 |" in said and "--rounds=7`" in said
    assert len(script.PARTS) == 10
