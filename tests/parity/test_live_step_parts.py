"""benchmarks/speed/step_parts.py: both sides compute the same, and times of a step add up."""

import numpy as np
import pytest
from comparing import needs

needs("torch")
from benchmarks.speed import step_parts


@pytest.mark.parametrize("index", range(10))
def test_both_sides_compute_the_same(index: int) -> None:
    part = step_parts.PARTS[index]
    mine, other = step_parts.ours(part)(), step_parts.theirs(part)()
    assert len(mine) == len(other) == 1 + part.back * len(part.shapes)
    for one, two in zip(mine, other, strict=True):
        np.testing.assert_allclose(one, two.numpy(), rtol=0, atol=2e-5 * float(two.abs().max()))


def test_a_row_counts_the_times_of_a_step() -> None:
    """12 times 4 ms are 0.05 s."""
    part = next(part for part in step_parts.PARTS if part.name == "GELU")
    row = step_parts.row(part, 0.004, 0.002, 0.5)
    assert list(row.values()) == ["GELU, forward and backward", 12, 4.0, 2.0, 0.5, 0.05, 0.02]
    assert len(step_parts.PARTS) == 10
