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


def test_both_ways() -> None:
    theirs = tensors()
    ours = to_ours(ROWS, theirs, SHAPES, "file")
    assert {path: array.shape for path, array in ours.items()} == SHAPES
    assert ours["a/kernel"][3, 1, 2] == theirs["x.weight"][5, 3] and ours["a/bias"][1, 0] == theirs["x.bias"][3]
    back = to_theirs(ROWS, ours, "model")
    assert back.keys() == theirs.keys() and all(back[name].tobytes() == theirs[name].tobytes() for name in back)


def test_an_error_names_tensors_that_do_not_fit() -> None:
    whole, bias = tensors(), tensors()["y.bias"]
    cases = {
        ("file", "lacks", "y.bias"): {name: t for name, t in whole.items() if name != "y.bias"},
        ("file", "tensor z", "1 more"): whole | {"z": bias, "w": bias},
        ("file", "x.weight", "(4, 6)", "(6, 4)"): whole | {"x.weight": whole["x.weight"].T},
        ("file", "x.bias", "int64"): whole | {"x.bias": np.zeros(6, np.int64)},
    }
    for parts, given in cases.items():
        with pytest.raises(UserError, match=mentioning(*parts)):
            to_ours(ROWS, given, SHAPES, "file")


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
