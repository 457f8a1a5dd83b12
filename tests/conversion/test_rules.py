"""Every tensor has one rule and every rule one tensor; errors name the others."""

import numpy as np
import pytest
from messages import mentioning

from bertzoo.conversion.rules import TensorRule, dense, norm, to_ours, to_theirs
from bertzoo.core.errors import UserError

ROWS = [*dense("a", "x", "D", "H K"), *norm("n", "y")]
SHAPES = {"a/kernel": (4, 2, 3), "a/bias": (2, 3), "n/scale": (4,), "n/bias": (4,)}


def tensors() -> dict[str, np.ndarray]:
    shapes = {"x.weight": (6, 4), "x.bias": (6,), "y.weight": (4,), "y.bias": (4,)}
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_a_parameter_without_a_place_is_named() -> None:
    ours = to_ours(ROWS, tensors(), SHAPES, "file")
    with pytest.raises(UserError, match=mentioning("parameter more")):
        to_theirs(ROWS, ours | {"more": np.zeros(1)}, "model")
    with pytest.raises(UserError, match=mentioning("n/bias")):
        to_theirs(ROWS, {path: array for path, array in ours.items() if path != "n/bias"}, "model")


@pytest.mark.parametrize(
    ("row", "named"), [(TensorRule("a/bias", "D", "z", "D"), "a/bias"), (TensorRule("b", "D", "x.bias", "D"), "x.bias")]
)
def test_two_rules_for_one_tensor_raise(row: TensorRule, named: str) -> None:
    with pytest.raises(ValueError, match=mentioning(named)):
        to_ours([*ROWS, row], tensors(), SHAPES, "file")
