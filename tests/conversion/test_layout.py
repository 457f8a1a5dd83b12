"""Axis patterns are inverses of each other, and say which shape fits."""

import einops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import mentioning

from bertzoo.conversion import layout


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
    array = np.arange(np.prod(list(sizes.values()))).reshape(layout.shape(ours, sizes))
    assert layout.bind(ours, array.shape, {}) == sizes
    there = layout.rearrange(array, ours, theirs, sizes)
    assert there.shape == layout.shape(theirs, sizes) and there.flags.c_contiguous
    np.testing.assert_array_equal(there, einops.rearrange(array, f"{ours} -> {theirs}", **sizes))
    np.testing.assert_array_equal(layout.rearrange(there, theirs, ours, sizes), array)


@pytest.mark.parametrize(
    "axes,shape", [("D H", (2, 3, 4)), ("(D H) K", (6, 4)), ("(G O)", (7,)), ("G", (2,)), ("1 D", (2, 3))]
)
def test_axes_that_do_not_describe_an_array(axes: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=mentioning("describe")):
        layout.bind(axes, shape, {"G": 3})
