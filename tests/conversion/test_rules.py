"""Axis patterns are inverses of each other; every tensor has one rule and every rule one tensor."""

import einops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import mentioning

from bertzoo.conversion import rules
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


@st.composite
def patterns(draw) -> tuple[str, str, dict[str, int]]:
    """Our axes, theirs (in any order, some of them grouped, ones in between), and sizes."""
    axes = draw(st.lists(st.sampled_from("DHKFVEWIO"), min_size=1, max_size=4, unique=True))
    order, theirs = draw(st.permutations(axes)), []
    while order:
        size = draw(st.integers(1, len(order)))
        group, order = order[:size], order[size:]
        theirs.append(f"({' '.join(group)})" if size > 1 or draw(st.booleans()) else group[0])
        if draw(st.booleans()):
            theirs.append("1")
    return " ".join(axes), " ".join(theirs), {axis: draw(st.integers(1, 4)) for axis in axes}


@settings(max_examples=60, deadline=None)
@given(patterns())
def test_round_trip(pattern: tuple[str, str, dict[str, int]]) -> None:
    ours, theirs, sizes = pattern
    array = np.arange(np.prod(list(sizes.values()))).reshape(rules.shape(ours, sizes))
    assert rules.bind(ours, array.shape, {}) == sizes
    there = rules.rearrange(array, ours, theirs, sizes)
    assert there.shape == rules.shape(theirs, sizes) and there.flags.c_contiguous
    np.testing.assert_array_equal(there, einops.rearrange(array, f"{ours} -> {theirs}", **sizes))
    np.testing.assert_array_equal(rules.rearrange(there, theirs, ours, sizes), array)


@pytest.mark.parametrize(
    "axes,shape", [("D H", (2, 3, 4)), ("(D H) K", (6, 4)), ("(G O)", (7,)), ("G", (2,)), ("1 D", (2, 3))]
)
def test_axes_that_do_not_describe_an_array(axes: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=mentioning("describe")):
        rules.bind(axes, shape, {"G": 3})
